// The chat view of one branch: its messages, the composer, and the actions on messages. Nothing is
// overwritten: edit, retry and fork create a new branch.
import { plainWords, post } from './api.js';
import { useBusy } from './busy.js';
import { useChoice } from './choice.js';
import { Composer, offerField } from './composer.js';
import { copied } from './copying.js';
import { asked } from './dialog.js';
import { Icon } from './icons.js';
import { useKeys } from './keys.js';
import { VirtualList } from './list.js';
import { MessageRow } from './message.js';
import { go, sessionLink } from './route.js';
import { SeenPanel } from './seen.js';
import { Empty, Failed, Guarded } from './states.js';
import { attempt, toast } from './toasts.js';
import { Transcript } from './transcript.js';
import { keepUnsent, unsent } from './unsent.js';
import { html, useEffect, useMemo, useRef, useState } from './view.js';

export function ChatView({ session, branch, params, models, onChange }) {
  const transcript = useTranscript(session, branch, onChange);
  const [selected, setSelected] = useState(null);
  const [editing, setEditing] = useState(null);
  const [seen, setSeen] = useState(null);
  const [away, setAway] = useState(false);
  const [ask, choose] = useChoice(models);
  const list = useRef(null);
  const field = useRef(null);
  useJump(transcript, list, params, setSelected);
  const empty = transcript.loaded && transcript.length === 0;
  useEffect(() => { if (empty) offerField(field.current); }, [empty]);  // an empty branch: focus the composer

  const [moving, act] = useBusy();  // a double click creates one branch
  const move = async (request) => {
    const result = await act(async () => {
      const response = await request();
      await onChange();
      return response;
    });
    if (!result || transcript.closed) return Boolean(result);
    setEditing(null);
    go(sessionLink(session.id, (result.branch ?? result).id));
    return true;
  };
  const deeds = {
    select: (message) => setSelected(message.id),
    edit: (message) => { setEditing(message?.id ?? null); if (message) setSelected(message.id); },
    edited: (message, text) => move(() => post(transcript.url('edit'), { message: message.id, text, run: ask })),
    retry: (message) => move(() => post(transcript.url('regenerate'), { message: message.id, run: ask })),
    fork: async (message) => {
      const given = await asked('Fork after this message', [['name', 'Name of the new branch (optional)']], 'Fork');
      if (given) await move(() => post(transcript.url('fork'), { at: message.id, name: given.name || null }));
    },
    copy: async (message) => { if (await copied(message.text)) toast('Copied.'); },
    judge: (message, thumb) => attempt(() => transcript.judge(message, thumb)),
    seen: (message) => setSeen(message),
    turn: (message, step) => {
      const all = message.siblings ?? [];
      const other = all[all.findIndex((one) => one.message_id === message.id) + step];
      if (other) go(sessionLink(session.id, other.branch_id, { m: other.message_id }));
    },
    decide: (message, approve) => attempt(async () => {
      await transcript.decide(message, approve, approve ? undefined : unsent(message.id));
      keepUnsent(message.id, '');
    }),
  };
  const send = (text) => attempt(async () => {
    list.current?.toEnd();
    await (transcript.running ? transcript.steer(text, ask) : transcript.run({ ...ask, text }));
    return true;
  });
  const stop = () => attempt(() => transcript.stop());
  useChatKeys({ transcript, selected, setSelected, list, field, deeds, stop, seen, setSeen });

  if (transcript.error) return html`<${Failed} error=${transcript.error} again=${() => transcript.load()} />`;
  const row = (index) => {
    const message = transcript.at(index);
    return html`<${Guarded}><${MessageRow} message=${message} selected=${message && message.id === selected} editing=${message && message.id === editing}
      deeds=${deeds} moving=${moving} score=${transcript.scores.get(message?.id)} tool=${transcript.tools.get(message?.result?.request_id)}
      state=${message?.call && stateOf(transcript, message, index)} told=${transcript.toldAt(index)} /><//>`;
  };
  return html`<div class="chat-and-panel">
    <section class="chat" aria-label="Conversation">
      ${!transcript.loaded && transcript.length === 0 && html`<div class="ghosts" aria-hidden="true">${[0, 1, 2].map((index) => html`<${MessageRow} key=${index} />`)}</div>`}
      ${empty && html`<${Empty}><p class="hello">What would you like to talk about?</p><//>`}
      <${VirtualList} count=${transcript.length} label="Messages" control=${(made) => { list.current = made; }} row=${row}
        keyOf=${(index) => transcript.at(index)?.id ?? index} onRange=${(from, to) => transcript.ensure(from, to)} onEnd=${(end) => setAway(!end)} />
      <div class="chat-foot">
        ${away && html`<button class="to-end" aria-label="Scroll to the end" title="Scroll to the end" onClick=${() => list.current.toEnd()}><${Icon} name="down" /></button>`}
        <${Notices} transcript=${transcript} ask=${ask} retry=${deeds.retry} />
        <${Composer} branch=${branch.id} running=${transcript.running} stopping=${transcript.busy.has('cancel')} models=${models} ask=${ask} choose=${choose}
          onSend=${send} onStop=${stop} control=${(made) => { field.current = made; }} />
      </div>
    </section>
    ${seen && html`<${SeenPanel} address=${transcript.url('messages', seen.id, 'seen')} close=${() => setSeen(null)} />`}
  </div>`;
}

function useTranscript(session, branch, onChange) {
  const transcript = useMemo(() => new Transcript(session.id, branch.id), [session.id, branch.id]);
  const [, redraw] = useState(0);
  useEffect(() => {
    const unwatch = transcript.watch(() => redraw((count) => count + 1));
    // Others may have added messages while the tab was hidden.
    const awake = () => { if (!document.hidden && !transcript.running) transcript.load(); };
    document.addEventListener('visibilitychange', awake);
    transcript.onEnd = onChange;
    transcript.load();
    return () => { document.removeEventListener('visibilitychange', awake); unwatch(); transcript.close(); };
  }, [transcript]);
  return transcript;
}

// Scroll to the message (m), perhaps on another branch, or the position (at) in the link.
function useJump(transcript, list, params, setSelected) {
  const known = transcript.loaded;
  useEffect(() => {
    const { m, at } = params;
    if (!known || (!m && at === undefined)) return undefined;
    let gone = false;
    attempt(async () => {
      const here = { branch_id: transcript.branch, index: Math.min(Math.trunc(at), transcript.total - 1) };
      const { branch_id: branch, index } = m ? await transcript.find(m) : here;
      if (gone || !(index >= 0)) return;
      if (branch !== transcript.branch) { go(sessionLink(transcript.session, branch, { m }), { replace: true }); return; }
      list.current?.reveal(index);
      transcript.ensure(index - 20, index + 20);
      const message = await transcript.message(index);
      if (!gone) setSelected(message?.id);
    });
    return () => { gone = true; };
  }, [transcript, params, known]);
}

// The state of a tool call: being decided, pending, running, or abandoned.
function stateOf(transcript, { call: { call_id: id } }, index) {
  if (transcript.busy.has(id)) return 'deciding';
  if (transcript.waiting.has(id)) return 'waiting';
  if (transcript.started.has(id)) return 'working';
  return transcript.passedBy(index) ? 'passed' : null;
}

function Notices({ transcript, ask, retry }) {
  const told = transcript.notices.filter(({ severity }) => severity !== 'info').slice(-3);
  const failed = told.some(({ severity }) => severity === 'error');
  const last = transcript.at(transcript.total - 1);
  const asking = transcript.busy.has('runs');
  const going = transcript.busy.has('resume');
  return html`<div class="notices" role="status">
    ${(!transcript.linked || transcript.away) && html`<p class="notice">Connection lost; reconnecting…</p>`}
    ${told.map(({ severity, code, text }) => html`<p class="notice ${severity}">${plainWords(code, text)}</p>`)}
    ${transcript.interrupted && !transcript.running && html`<p class="notice">The last answer was interrupted.
      <button class="button quiet" id="resume" disabled=${going} onClick=${() => attempt(() => transcript.resume())}>${going ? 'Resuming…' : 'Resume'}</button></p>`}
    ${transcript.unanswered && html`<p class="notice calm">${failed ? 'The model did not answer. Try again, with another model if you like.' : 'This message has no answer yet.'}
      <button class="button quiet" id="answer" disabled=${asking} onClick=${() => attempt(() => transcript.run(ask))}>${asking ? 'Asking…' : failed ? 'Retry' : 'Ask the model'}</button></p>`}
    ${failed && !transcript.running && !transcript.unanswered && last?.kind === 'answer' && html`<p class="notice calm">The answer was cut off.
      <button class="button quiet" id="retry" onClick=${() => retry(last)}>Retry on a new branch</button></p>`}
  </div>`;
}

function useChatKeys({ transcript, selected, setSelected, list, field, deeds, stop, seen, setSeen }) {
  const current = () => {
    const index = transcript.indexOf(selected);
    return index < 0 ? null : transcript.at(index);
  };
  const select = (index) => {
    const message = transcript.at(index);
    if (!message) return;
    setSelected(message.id);
    list.current?.show(index);
  };
  const step = (by) => {
    const from = transcript.indexOf(selected);
    select(Math.max(0, Math.min(transcript.total - 1, from < 0 ? transcript.total - 1 : from + by)));
  };
  const on = (kind, deed) => () => { const message = current(); if (message && (!kind || message.kind === kind)) deed(message); };
  // A stray key must not approve a tool call: the first press only selects it.
  const waits = (approve) => () => {
    const [first] = transcript.waiting.values();
    const call = transcript.waiting.get(current()?.call?.call_id);
    if (call) deeds.decide(call, approve);
    else if (first) select(transcript.indexOf(first.id));
  };
  useKeys({
    i: () => field.current?.focus(),
    j: () => step(1),
    k: () => step(-1),
    e: on('instruction', deeds.edit),
    r: on('answer', deeds.retry),
    f: on(null, deeds.fork),
    w: on('answer', deeds.seen),
    y: on(null, (message) => message.text && deeds.copy(message)),
    '+': on('answer', (message) => deeds.judge(message, 'up')),
    '-': on('answer', (message) => deeds.judge(message, 'down')),
    '[': on(null, (message) => deeds.turn(message, -1)),
    ']': on(null, (message) => deeds.turn(message, 1)),
    a: waits(true),
    d: waits(false),
    x: () => transcript.running && stop(),
    ...(seen && { Escape: () => setSeen(null) }),
  });
}
