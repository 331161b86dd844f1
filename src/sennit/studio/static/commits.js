// Commits: what each one made of a session, and the way back.
import { get, post } from './api.js';
import { confirmed } from './dialog.js';
import { Icon } from './icons.js';
import { Decisions } from './memory.js';
import { sessionLink } from './route.js';
import { Empty, Failed } from './states.js';
import { attempt, toast } from './toasts.js';
import { html, useEffect, useState } from './view.js';
import { fully } from './words.js';

export function Commits({ changed, version }) {
  const [commits, setCommits] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => { get('/api/commits').then((told) => setCommits(told.commits), setError); }, [version]);
  if (error) return html`<${Failed} error=${error} />`;
  if (!commits) return html`<${Empty}>Looking…<//>`;
  if (!commits.length) return html`<${Empty}>No commits yet.<//>`;
  return html`<div class="commits">${commits.map((one) => html`<${Commit} key=${one.id} commit=${one} changed=${changed} />`)}</div>`;
}

function Commit({ commit, changed }) {
  const undo = async () => {
    if (!await confirmed('Undo this commit?', 'What it wrote is taken back; the messages stay.', 'Undo')) return;
    await attempt(async () => {
      await post(`/api/commits/${encodeURIComponent(commit.id)}/undo`);
      toast('The commit was undone.');
      changed();
    });
  };
  const { status, memories_extracted: count = 0, method } = commit.result;
  return html`<section class="commit">
    <header><span class="badge ${status === 'committed' ? 'good' : ''}">${status}</span>
      <b>${count === 1 ? '1 memory' : `${count} memories`}</b>
      <time class="hint" datetime=${commit.created_at}>${fully(commit.created_at)}</time>
      ${method && html`<span class="hint">by ${method}</span>`}
      <a class="hint" href=${sessionLink(commit.session, commit.branch)}>the session</a>
      <span class="spring"></span>
      ${status !== 'undone' && html`<button class="button quiet undo" onClick=${undo}><${Icon} name="undo" />Undo</button>`}</header>
    <${Decisions} decisions=${commit.decisions} />
  </section>`;
}
