// The side bar: all sessions, newest first, and a search field for session names, messages and memories.
import { get, path, post, query } from './api.js';
import { asked } from './dialog.js';
import { Icon } from './icons.js';
import { useKeys } from './keys.js';
import { useAnswer, usePages, useSettled } from './reading.js';
import { go, pageLink, sessionLink } from './route.js';
import { classes, html, useRef, useState } from './view.js';
import { fully, line, when } from './words.js';

const PAGE = 40;

export function Sessions({ current, version }) {
  const [words, setWords] = useState('');
  const contains = useSettled(words);
  const read = async ({ limit, before, signal }) => {
    const { sessions, next } = await get('/api/sessions' + query({ contains, limit, before }), { signal });
    return { items: sessions, next };
  };
  const { items, next, error, more, again } = usePages(contains, read, { size: PAGE, version });
  const found = useAnswer(contains.trim() ? '/api/find' + query({ q: contains, limit: 12 }) : null);
  const field = useRef(null);
  useKeys({ '/': () => field.current.focus(), n: begin });
  return html`
    <div class="side-top">
      <label class="search"><${Icon} name="search" /><span class="sr">Search</span>
        <input ref=${field} id="search" type="search" placeholder="Search" value=${words} autocomplete="off"
          onInput=${(event) => setWords(event.target.value)}
          onKeyDown=${(event) => event.key === 'Escape' && (words ? setWords('') : field.current.blur())} /></label>
      <button class="icon-button new" id="new" title="New session (n)" aria-label="New session" onClick=${begin}><${Icon} name="plus" /></button>
    </div>
    <nav class="session-list" aria-label="Sessions">
      ${error && html`<p class="hint" role="alert">${error.message} <button class="button quiet" onClick=${again}>Try again</button></p>`}
      ${contains && html`<h2>Sessions</h2>`}
      ${items?.map((session) => html`<${Entry} key=${session.id} session=${session} here=${session.id === current} />`)}
      ${items?.length === 0 && !error && html`<p class="hint">${contains ? 'No session has that name.' : 'No sessions yet. Write a message, and the first one begins.'}</p>`}
      ${next && html`<button class="button quiet wide" onClick=${more}>More</button>`}
      ${found.answer && html`<${Found} found=${found.answer.matches} />`}
      ${found.error && html`<p class="hint" role="alert">${found.error.message}</p>`}
    </nav>`;
}

/** Create a session and open it. */
export async function begin() {
  let session;
  const given = await asked('New session', [['key', 'Name (optional)'], ['system', 'System prompt (optional)', 'long']], 'Create', async (texts) => {
    session = await post('/api/sessions', Object.fromEntries(Object.entries(texts).filter(([, text]) => text)));
    dispatchEvent(new Event('sessionschange'));
  });
  if (given) go(sessionLink(session.id));
}

export const beginBranch = (session) => post(path('sessions', session, 'branches'), { name: 'main' });

export const titleOf = (session) => session.title || session.key || 'Untitled';

function Entry({ session, here }) {
  return html`<a class=${classes('session', here && 'here')} href=${sessionLink(session.id)} aria-current=${here ? 'page' : undefined}>
    <span class="title">${line(titleOf(session), 90)}</span>
    <time datetime=${session.updated_at} title=${fully(session.updated_at)}>${when(session.updated_at)}</time>
  </a>`;
}

function Found({ found }) {
  return html`<h2>Messages and memories</h2>
    ${found.map((one) => html`<a class="session found" key=${one.uri} href=${linkTo(one)}>
      <span class="badge">${one.category ?? 'file'}</span><span class="title">${line(wordsOf(one), 140)}</span></a>`)}
    ${!found.length && html`<p class="hint">No results.</p>`}`;
}

// The text of a match, without the name of the speaker.
const wordsOf = ({ abstract, speaker }) => (speaker ? abstract.replace(`${speaker}: `, '') : abstract);

function linkTo({ session, message, uri }) {
  return message ? sessionLink(session, null, { m: message }) : pageLink('memory', { uri });
}
