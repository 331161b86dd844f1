// The session page: name, branch picker, and the views chat, tree and compare.
import { del, download, get, onBack, path, post, put, query } from './api.js';
import { useBusy } from './busy.js';
import { ChatView } from './chat.js';
import { colourOf, deal } from './colours.js';
import { CompareView } from './compare.js';
import { asked, confirmed } from './dialog.js';
import { Icon } from './icons.js';
import { useKeys } from './keys.js';
import { Menu } from './menu.js';
import { go, pageLink, sessionLink, useTitle } from './route.js';
import { beginBranch, titleOf } from './sessions.js';
import { Empty, Failed } from './states.js';
import { attempt, toast } from './toasts.js';
import { TreeView } from './tree.js';
import { html, useEffect, useRef, useState } from './view.js';
import { line, many } from './words.js';

const VIEWS = [['chat', 'Chat'], ['tree', 'Tree'], ['compare', 'Compare']];
const FORMATS = [['jsonl', 'Export the session'], ['openai', 'Export for training: chat messages'], ['sharegpt', 'Export for training: ShareGPT'], ['dpo', 'Export for training: preferences']];

export function SessionView({ route, models }) {
  const { session: id, view, params } = route;
  const { session, error, version, refresh } = useSession(id);
  const branch = session && pick(session.branches, route.branch);
  useAddress({ route, session, branch, version, refresh });
  const to = (name) => branch && go(sessionLink(id, branch.id, { view: name }));
  useTitle(session && line(titleOf(session), 60));
  useKeys({ c: () => to('chat'), t: () => to('tree'), b: () => to('compare') });
  if (error) return html`<${Failed} error=${error} again=${refresh} />`;
  if (!session || branch === undefined) return html`<${Empty}>Opening…<//>`;
  const name = titleOf(session);
  return html`<div class="session-page">
    <header class="session-head">
      <h1 title=${name}>${name}</h1>
      ${branch && html`<${BranchPicker} session=${session} branch=${branch} view=${view} />
      <div class="tabs" role="tablist" aria-label="Views">${VIEWS.map(([key, words]) => html`
        <a key=${key} role="tab" id="tab-${key}" aria-selected=${view === key} href=${sessionLink(id, branch.id, { view: key })}>${words}</a>`)}</div>`}
      <${SessionDeeds} session=${session} branch=${branch} refresh=${refresh} />
    </header>
    ${!branch && html`<${Begin} session=${session} refresh=${refresh} />`}
    ${branch && view === 'chat' && html`<${ChatView} key=${branch.id} session=${session} branch=${branch} params=${params} models=${models} onChange=${refresh} />`}
    ${branch && view === 'tree' && html`<${TreeView} session=${session} branch=${branch} version=${version} />`}
    ${branch && view === 'compare' && html`<${CompareView} session=${session} branches=${session.branches} branch=${branch} other=${params.with} version=${version} />`}
  </div>`;
}

// Load a session. If a reload fails, the last state stays visible.
function useSession(id) {
  const [state, setState] = useState({ version: 0 });
  const { current: reading } = useRef({ asked: 0, shown: 0, life: new AbortController() });
  const load = async () => {
    const mine = reading.asked += 1;
    try {
      const session = await get(path('sessions', id), { signal: reading.life.signal });
      if (mine < reading.shown) return;
      Object.assign(reading, { shown: mine, failed: false });
      deal(session.branches);
      setState((was) => ({ session, version: was.version + 1 }));
    } catch (error) {
      if (error.name === 'AbortError') return;
      reading.failed = error.passing;
      if (reading.shown) toast(error.message, 'failed');
      else setState((was) => ({ ...was, error }));
    }
  };
  const refresh = async () => {
    await load();
    dispatchEvent(new Event('sessionschange'));
  };
  useEffect(() => {
    load();
    const unwatch = onBack(() => { if (reading.failed) load(); });
    return () => { unwatch(); reading.life.abort(); };
  }, []);
  return { ...state, refresh };
}

// Find a branch by id or name, or undefined; by default main or the first branch, or null without any.
function pick(branches, asked) {
  if (asked) return branches.find(({ id }) => id === asked) ?? branches.find(({ name }) => name === asked);
  return branches.find(({ name }) => name === 'main') ?? branches[0] ?? null;
}

// A link names a branch by its id, which survives renaming. An unknown branch may have been created since the
// session was loaded: reload once, then report it as not found.
function useAddress({ route, session, branch, version, refresh }) {
  const sought = useRef(null);
  useEffect(() => {
    if (!session || !route.branch) return;
    const link = (id) => sessionLink(session.id, id, { view: route.view, ...route.params });
    if (branch && branch.id !== route.branch) go(link(branch.id), { replace: true });
    if (branch) return;
    if (sought.current !== route.branch) {
      sought.current = route.branch;
      refresh();
    } else {
      toast('Branch not found; it may have been deleted.', 'failed');
      go(sessionLink(session.id), { replace: true });
    }
  }, [route.branch, version]);
}

function BranchPicker({ session, branch, view }) {
  const from = branch.forked_from;
  return html`<span class="branch-picker ${colourOf(branch.id)}">
    <span class="dot" aria-hidden="true"></span>
    <select class="select" id="branch" aria-label="Branch" value=${branch.id} onChange=${(event) => go(sessionLink(session.id, event.target.value, { view }))}>
      ${session.branches.map(({ id, name }) => html`<option key=${id} value=${id}>${name}</option>`)}
    </select>
    ${from && html`<a class="from" title="Go to the fork point on ${from.branch_name}"
      href=${sessionLink(session.id, branch.id, { at: Math.max(0, from.message_count - 1) })}>from ${from.branch_name} at ${from.message_count}</a>`}
  </span>`;
}

function Begin({ session, refresh }) {
  const [busy, act] = useBusy();
  const begin = () => act(async () => {
    await beginBranch(session.id);
    await refresh();
  });
  return html`<${Empty}><p>This session has no branch yet.</p><button class="button primary" disabled=${busy} onClick=${begin}>Create one</button><//>`;
}

/** Ask for a new name and call `give` with it, unless it is unchanged. */
async function renamed(title, label, was, give) {
  const given = await asked(title, [['name', label, 'short', was]], 'Rename');
  if (given && given.name !== was) await attempt(() => give(given.name));
}

function SessionDeeds({ session, branch, refresh }) {
  const nameSession = () => renamed('Name this session', 'Name (optional)', titleOf(session), async (name) => {
    const { metadata: { title, ...noted } } = await get(path('sessions', session.id));  // keep the metadata of other clients
    await put(path('sessions', session.id), { metadata: name ? { ...noted, title: name } : noted });
    await refresh();
  });
  const renameBranch = () => renamed('Rename this branch', 'Name', branch.name, async (name) => {
    await put(path('sessions', session.id, 'branches', branch.id), { name });
    await refresh();
  });
  const remove = (words, warning, work) => async () => {
    if (!await confirmed(words, warning, 'Delete')) return;
    await attempt(async () => { await work(); dispatchEvent(new Event('sessionschange')); });
  };
  const removeBranch = remove('Delete this branch?', 'Messages shared with other branches are kept.', async () => {
    await del(path('sessions', session.id, 'branches', branch.id));
    go(sessionLink(session.id));
    await refresh();
  });
  const removeSession = remove('Delete this session?', 'All its branches and messages are erased for good.', async () => {
    await del(path('sessions', session.id));
    go('#/');
  });
  const save = (format) => attempt(() => {
    const name = `${session.key ?? session.id}${format === 'jsonl' ? '' : `.${format}`}.jsonl`;
    return download(path('sessions', session.id, 'export') + query({ format }), name);
  });
  const entries = [
    ['Name this session', nameSession],
    ...(branch && branch.name !== 'main' ? [['Rename this branch', renameBranch]] : []), null,
    ...FORMATS.map(([format, words]) => [words, () => save(format)]), null,
    ...(session.branches.length > 1 ? [['Delete this branch', removeBranch, 'bad']] : []),
    ['Delete this session', removeSession, 'bad'],
  ];
  return html`<div class="session-deeds">
    ${branch && html`<${Remember} session=${session} branch=${branch} />`}
    <${Menu} label="More" icon="more" entries=${entries} />
  </div>`;
}

function Remember({ session, branch }) {
  const [busy, act] = useBusy();
  const box = useRef(null);
  const remember = async () => {
    const result = await act(() => post(path('sessions', session.id, 'commit'), { branch: branch.id, wait: true }));
    if (!result) return;
    const count = result.memories_extracted ?? 0;
    toast(count ? `Saved ${many(count, 'memory', 'memories')}.` : 'Nothing new to remember.');
    if (count && box.current) go(pageLink('memory'));  // unless the user has left the page
  };
  return html`<button class="button quiet" id="remember" ref=${box} disabled=${busy} title="Commit: extract memories from this branch"
    onClick=${remember}><${Icon} name="memory" /><span>${busy ? 'Remembering…' : 'Remember'}</span></button>`;
}
