// The side bar: all sessions, newest first, and one field that searches them by name and everything
// ever said or remembered by words.
import { get, path, post, query } from './api.js';
import { asked } from './dialog.js';
import { Icon } from './icons.js';
import { useKeys } from './keys.js';
import { go, pageLink, sessionLink } from './route.js';
import { attempt } from './toasts.js';
import { classes, html, useEffect, useRef, useState } from './view.js';
import { fully, line, when } from './words.js';

const PAGE = 40;
const PAUSE = 180;

export function Sessions({ current, version }) {
  const [words, setWords] = useState('');
  const [page, setPage] = useState({ sessions: [], next: null });
  const [found, setFound] = useState(null);
  const [error, setError] = useState(null);
  const field = useRef(null);
  useEffect(() => {
    const life = new AbortController();
    const timer = setTimeout(() => look(words, life.signal, { setPage, setFound, setError }), words ? PAUSE : 0);
    return () => { clearTimeout(timer); life.abort(); };
  }, [words, version]);
  useKeys({ '/': () => field.current.focus(), n: begin });
  const more = () => attempt(async () => {
    const next = await get('/api/sessions' + query({ contains: words, limit: PAGE, before: page.next }));
    setPage({ sessions: [...page.sessions, ...next.sessions], next: next.next });
  });
  return html`
    <div class="side-top">
      <label class="search"><${Icon} name="search" /><span class="sr">Search</span>
        <input ref=${field} id="search" type="search" placeholder="Search" value=${words} autocomplete="off"
          onInput=${(event) => setWords(event.target.value)}
          onKeyDown=${(event) => event.key === 'Escape' && (words ? setWords('') : field.current.blur())} /></label>
      <button class="icon-button new" id="new" title="New session (n)" aria-label="New session" onClick=${begin}><${Icon} name="plus" /></button>
    </div>
    <nav class="session-list" aria-label="Sessions">
      ${error && html`<p class="hint" role="alert">${error.message}</p>`}
      ${words && html`<h2>Sessions</h2>`}
      ${page.sessions.map((session) => html`<${Entry} key=${session.id} session=${session} here=${session.id === current} />`)}
      ${!page.sessions.length && !error && html`<p class="hint">${words ? 'No session has that name.' : 'No sessions yet.'}</p>`}
      ${page.next && html`<button class="button quiet wide" onClick=${more}>More</button>`}
      ${words && found && html`<${Found} found=${found} />`}
    </nav>`;
}

async function look(words, signal, { setPage, setFound, setError }) {
  try {
    setPage(await get('/api/sessions' + query({ contains: words, limit: PAGE }), { signal }));
    setFound(words.trim() ? (await get('/api/find' + query({ q: words, limit: 12 }), { signal })).matches : null);
    setError(null);
  } catch (error) {
    if (error.name !== 'AbortError' && error.status !== 401) setError(error);
  }
}

/** Make a session and go there. */
export async function begin() {
  const given = await asked('New session', [['key', 'Name (may be empty)'], ['system', 'What the model is told first (may be empty)', 'long']], 'Begin');
  if (given === null) return;
  await attempt(async () => {
    const session = await post('/api/sessions', Object.fromEntries(Object.entries(given).filter(([, text]) => text)));
    if (!given.system) await beginBranch(session.id);  // with a system message there is one already
    dispatchEvent(new Event('sessionschange'));
    go(sessionLink(session.id));
  });
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
  return html`<h2>Said and remembered</h2>
    ${found.map((one) => html`<a class="session found" key=${one.uri} href=${linkTo(one)}>
      <span class="badge">${one.category ?? 'message'}</span><span class="title">${line(one.abstract, 140)}</span></a>`)}
    ${!found.length && html`<p class="hint">Nothing was found.</p>`}`;
}

function linkTo({ session, message, uri }) {
  return message ? sessionLink(session, null, { m: message }) : pageLink('memory', { uri });
}
