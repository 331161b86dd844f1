// The list of commits with their decisions, and a button to undo each.
import { post } from './api.js';
import { useBusy } from './busy.js';
import { confirmed } from './dialog.js';
import { Icon } from './icons.js';
import { useAnswer } from './reading.js';
import { pageLink, sessionLink } from './route.js';
import { Empty, Failed } from './states.js';
import { toast } from './toasts.js';
import { html } from './view.js';
import { fully } from './words.js';

export function Commits({ changed, version }) {
  const { answer, error, again } = useAnswer('/api/commits', version);
  if (error) return html`<${Failed} error=${error} again=${again} />`;
  if (!answer) return html`<${Empty}>Loading…<//>`;
  if (!answer.commits.length) return html`<${Empty}><p>No commits yet.</p><p class="hint">Open a session and press Remember: each commit is listed here and can be undone.</p><//>`;
  return html`<div class="commits">${answer.commits.map((one) => html`<${Commit} key=${one.id} commit=${one} changed=${changed} />`)}</div>`;
}

function Commit({ commit, changed }) {
  const [busy, act] = useBusy();
  const undo = async () => {
    if (!await confirmed('Undo this commit?', 'The memories it wrote are reverted; the messages stay.', 'Undo')) return;
    await act(async () => {
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
      ${method && html`<span class="hint">${method === 'rules' ? 'extracted by rules' : `extracted by ${method}`}</span>`}
      <a class="hint" href=${sessionLink(commit.session, commit.branch)}>Show the conversation</a>
      <span class="spring"></span>
      ${status !== 'undone' && html`<button class="button quiet undo" disabled=${busy} onClick=${undo}><${Icon} name="undo" />${busy ? 'Undoing…' : 'Undo'}</button>`}</header>
    <${Decisions} decisions=${commit.decisions} />
  </section>`;
}

export function Decisions({ decisions }) {
  return html`<ul class="decisions">${decisions.map((one, index) => html`<li key=${index}>
    <span class="badge">${one.did}</span><span class="badge">${one.category}</span>
    <a href=${pageLink('memory', { uri: one.uri.split('#')[0] })}>${one.uri.split('#')[0].split('/').at(-1)}</a>
    ${one.reason && html`<span class="hint">${one.reason}</span>`}</li>`)}</ul>`;
}
