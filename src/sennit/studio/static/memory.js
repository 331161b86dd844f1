// The memory page: each memory with its evidence, its history and the decisions of its commit, with buttons
// to forget a memory and to undo a commit.
import { get, post, query } from './api.js';
import { useBusy } from './busy.js';
import { Commits, Decisions } from './commits.js';
import { confirmed } from './dialog.js';
import { Icon } from './icons.js';
import { Markdown } from './markdown.js';
import { useAnswer, usePages, useSettled } from './reading.js';
import { go, pageLink, sessionLink, useTitle } from './route.js';
import { Empty, Failed } from './states.js';
import { toast } from './toasts.js';
import { classes, html, useState } from './view.js';
import { fully, gist, many, when } from './words.js';

const CATEGORIES = [['', 'All'], ['profile', 'Profile'], ['preferences', 'Preferences'], ['entities', 'Entities'],
  ['events', 'Events'], ['cases', 'Cases'], ['patterns', 'Patterns']];
const PAGE = 60;

export function MemoryPage({ params }) {
  const { category = '', uri } = params;
  const [version, setVersion] = useState(0);
  useTitle('Memory');
  const changed = () => setVersion((count) => count + 1);
  return html`<div class="page">
    <header class="page-head"><h1>Memory</h1><p>Memories extracted from your conversations, with the messages they come from. With “Use memory” on, relevant memories are added to the prompt, and the answer lists them.</p></header>
    <nav class="filters" aria-label="Categories">${[...CATEGORIES, ['commits', 'Commits']].map(([key, words]) => html`
      <a key=${key} class=${classes('filter', key === category && 'here')} aria-current=${key === category ? 'true' : undefined}
        href=${pageLink('memory', { category: key || undefined })}>${words}</a>`)}</nav>
    ${category === 'commits'
      ? html`<${Commits} changed=${changed} version=${version} />`
      : html`<div class=${classes('memory', uri && 'chosen')}>
          <${Memories} category=${category} chosen=${uri} version=${version} />
          ${uri && html`<${Item} key=${uri} uri=${uri} category=${category} changed=${changed} />`}
        </div>`}
  </div>`;
}

function Memories({ category, chosen, version }) {
  const [typed, setTyped] = useState('');
  const words = useSettled(typed).trim();
  const { items, next, error, more, again } = usePages(`${category} ${words}`, (page) => memories(category, words, page), { size: PAGE, version });
  const [, kind] = CATEGORIES.find(([key]) => key === category) ?? [];
  return html`<div class="memory-list">
    <input class="search-field" id="memory-search" type="search" aria-label="Search memories" placeholder="Search memories" value=${typed} onInput=${(event) => setTyped(event.target.value)} />
    ${error && html`<${Failed} error=${error} again=${again} />`}
    ${items?.length === 0 && !error && html`<${Empty}><p>${words ? 'No results.' : category ? `No memories under ${kind ?? category} yet.` : 'No memories yet.'}</p>
      ${!words && !category && html`<p class="hint">Open a session and press Remember to extract memories from it.</p>`}<//>`}
    ${items?.map((one) => html`<a key=${one.uri} class=${classes('memory-entry', one.uri === chosen && 'here')}
        href=${pageLink('memory', { category: category || undefined, uri: one.uri })} aria-current=${one.uri === chosen ? 'true' : undefined}>
      <span class="memory-text">${gist(one.text ?? one.abstract)}</span>
      <span class="memory-about"><span class="badge">${one.category}</span>${one.learnt_at && html`<time datetime=${one.learnt_at}>${when(one.learnt_at)}</time>`}
        ${one.valid_to && html`<span class="badge bad">until ${when(one.valid_to)}</span>`}</span></a>`)}
    ${next && html`<button class="button wide" onClick=${more}>More</button>`}
  </div>`;
}

async function memories(category, words, { limit, before, signal }) {
  if (!words) {
    const page = await get('/api/memories' + query({ category, limit, before }), { signal });
    return { items: page.memories, next: page.next };
  }
  const kinds = category || CATEGORIES.slice(1).map(([key]) => key).join();
  const { matches } = await get('/api/find' + query({ q: words, category: kinds, limit: 50 }), { signal });
  return { items: matches, next: null };
}

function Item({ uri, category, changed }) {
  const [busy, act] = useBusy();
  const { answer, error, again } = useAnswer('/api/memories/item' + query({ uri }));
  const list = pageLink('memory', { category: category || undefined });
  if (error) return html`<article class="memory-item"><${Failed} error=${error} again=${again} /></article>`;
  if (!answer) return html`<article class="memory-item"><${Empty}>Loading…<//></article>`;
  const { memory, history, decisions } = answer;
  const forget = async () => {
    if (!await confirmed('Forget this memory?', 'The memory and its history are erased for good.', 'Forget')) return;
    await act(async () => {
      await post('/api/forget', { uri }).catch((error) => { if (error.status !== 404) throw error; });  // another window has forgotten it already
      toast('Forgotten.');
      changed();
      go(list);
    });
  };
  return html`<article class="memory-item" aria-label="Memory">
    <header class="item-head"><span class="badge">${memory.category}</span><b class="uri">${nameOf(memory.uri)}</b>
      <a class="icon-button" href=${list} aria-label="Close"><${Icon} name="close" /></a></header>
    <div class="item-text"><${Markdown} text=${memory.text} /></div>
    <${Validity} memory=${memory} />
    <h2>Evidence</h2><${Evidence} evidence=${memory.evidence} />
    <h2>History</h2><${History} history=${history} />
    ${decisions.length > 0 && html`<h2>Commit decisions</h2><${Decisions} decisions=${decisions} />`}
    <div class="item-deeds"><button class="button quiet bad" id="forget" disabled=${busy} onClick=${forget}>${busy ? 'Forgetting…' : 'Forget'}</button></div>
  </article>`;
}

// The name of a memory's file, as words.
const nameOf = (uri) => uri.split('#')[0].split('/').at(-1).replace(/\.md$/, '').replaceAll(/[-_]+/g, ' ');

function Validity({ memory }) {
  return html`<dl class="facts">
    <div><dt>Learnt</dt><dd>${fully(memory.learnt_at)}</dd></div>
    <div><dt>Valid from</dt><dd>${fully(memory.valid_from)}</dd></div>
    <div><dt>Valid until</dt><dd>${memory.valid_to ? fully(memory.valid_to) : 'now'}</dd></div>
    <div><dt>Address</dt><dd><code>${memory.uri}</code></dd></div>
    <div><dt>Used</dt><dd>${many(memory.active_count, 'time')}</dd></div>
  </dl>`;
}

function Evidence({ evidence }) {
  if (!evidence.length) return html`<p class="hint">Written by hand, without a source message.</p>`;
  return html`<ul class="evidence">${evidence.map((one) => html`<li key=${one.message}>
    <blockquote>${one.text ?? 'The message has been deleted.'}</blockquote>
    ${one.text !== null && html`<span class="evidence-about"><a class="to-message" href=${sessionLink(one.session, null, { m: one.message })}>Show the message</a>
      <time class="hint" datetime=${one.said_at}>${one.role} · ${fully(one.said_at)}</time></span>`}</li>`)}</ul>`;
}

function History({ history }) {
  return html`<ol class="history">${history.map((one) => html`<li key=${one.version}>
    <span class="badge">${one.did}</span><span class="history-text">${gist(one.text, 300)}</span>
    <time class="hint" datetime=${one.learnt_at}>${fully(one.learnt_at)}</time></li>`)}</ol>`;
}
