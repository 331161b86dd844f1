// The conversation of one branch: reads it, lets it grow, and turns what a person does at a message into
// a fork. Nothing is overwritten here: edit, retry and fork lead to a new branch.
import { post } from './api.js';
import { Composer } from './composer.js';
import { asked } from './dialog.js';
import { Icon } from './icons.js';
import { useKeys } from './keys.js';
import { VirtualList } from './list.js';
import { MessageRow } from './message.js';
import { go, sessionLink } from './route.js';
import { SeenPanel } from './seen.js';
import { Empty, Failed } from './states.js';
import { attempt } from './toasts.js';
import { Transcript } from './transcript.js';
import { html, useEffect, useMemo, useRef, useState } from './view.js';

export function ChatView({ session, branch, params, models, onChange }) {
  const transcript = useTranscript(session, branch, onChange);
  const [selected, setSelected] = useState(null);
  const [editing, setEditing] = useState(null);
  const [seen, setSeen] = useState(null);
  const [away, setAway] = useState(false);
  const [ask, setAsk] = useAsk(models);
  const list = useRef(null);
  const field = useRef(null);
  const known = transcript.loaded;
  useJump(transcript, list, params, setSelected, known);

  const move = async (made) => {
    const one = await attempt(made);
    if (!one) return;
    await onChange();
    go(sessionLink(session.id, (one.branch ?? one).id));
  };
  const deeds = {
    select: (message) => setSelected(message.id),
    edit: (message) => { setEditing(message?.id ?? null); if (message) setSelected(message.id); },
    edited: (message, text) => { setEditing(null); return move(() => post(transcript.url('edit'), { message: message.id, text, run: ask })); },
    retry: (message) => move(() => post(transcript.url('regenerate'), { message: message.id, run: ask })),
    fork: async (message) => {
      const given = await asked('Fork after this message', [['name', 'Name of the new branch (may be empty)']], 'Fork');
      if (given) await move(() => post(transcript.url('fork'), { at: message.id, name: given.name || null }));
    },
    seen: (message) => setSeen(message),
    turn: (message, step) => {
      const all = message.siblings ?? [];
      const other = all[all.findIndex((one) => one.message_id === message.id) + step];
      if (other) go(sessionLink(session.id, other.branch_id, { m: other.message_id }));
    },
    decide: (message, approve, reason) => attempt(() => transcript.decide(message, approve, reason)),
  };
  const send = (text) => attempt(async () => {
    list.current?.toEnd();
    await transcript.run({ ...ask, text });
    return true;
  });
  const stop = () => attempt(() => transcript.stop());
  useChatKeys({ transcript, selected, setSelected, list, field, deeds, stop, seen, setSeen });

  if (transcript.error) return html`<${Failed} error=${transcript.error} again=${() => transcript.load()} />`;
  return html`<div class="chat-and-panel">
    <section class="chat" aria-label="Conversation">
      ${transcript.length === 0 && known && html`<${Empty}><p class="hello">What shall we talk about?</p><//>`}
      <${VirtualList} key=${branch.id} count=${transcript.length} label="Messages" control=${(made) => { list.current = made; }}
        keyOf=${(index) => transcript.at(index)?.id ?? index} onRange=${(from, to) => transcript.ensure(from, to)} onEnd=${(end) => setAway(!end)}
        row=${(index) => {
          const message = transcript.at(index);
          const call = message?.call?.call_id;
          return html`<${MessageRow} message=${message} selected=${message && message.id === selected} editing=${message && message.id === editing}
            deeds=${deeds} waiting=${transcript.waiting.has(call)} working=${transcript.started.has(call)} />`;
        }} />
      ${away && html`<button class="to-end" aria-label="Go to the end" onClick=${() => list.current.toEnd()}><${Icon} name="down" /></button>`}
      <${Notices} transcript=${transcript} />
      <${Composer} branch=${branch.id} running=${transcript.running} models=${models} model=${ask.model} remember=${ask.memory}
        onModel=${(model) => setAsk({ ...ask, model })} onRemember=${(memory) => setAsk({ ...ask, memory })}
        onSend=${send} onStop=${stop} control=${(made) => { field.current = made; }} />
    </section>
    ${seen && html`<${SeenPanel} transcript=${transcript} message=${seen} close=${() => setSeen(null)} />`}
  </div>`;
}

function useTranscript(session, branch, onChange) {
  const transcript = useMemo(() => new Transcript(session.id, branch.id), [session.id, branch.id]);
  const [, redraw] = useState(0);
  useEffect(() => {
    const unwatch = transcript.watch(() => redraw((count) => count + 1));
    transcript.onEnd = onChange;
    transcript.load();
    return () => { unwatch(); transcript.close(); };
  }, [transcript]);
  return transcript;
}

function useAsk(models) {
  const preferred = models.find((one) => one.default) ?? models[0];
  return useState({ model: preferred?.name, memory: true });
}

// A link may name a message (m), which may stand on another branch, or a position (at).
function useJump(transcript, list, { m, at }, setSelected, known) {
  useEffect(() => {
    if (!known || (!m && at === undefined)) return;
    attempt(async () => {
      const here = { branch_id: transcript.branch, index: Math.min(Number(at), transcript.total - 1) };
      const { branch_id: branch, index } = m ? await transcript.find(m) : here;
      if (branch !== transcript.branch) return go(sessionLink(transcript.session, branch, { m }), { replace: true });
      if (!(index >= 0)) return undefined;
      list.current?.reveal(index);
      transcript.ensure(index - 20, index + 20);
      return setSelected((await transcript.message(index))?.id);
    });
  }, [transcript, m, at, known]);
}

function Notices({ transcript }) {
  const told = transcript.notices.filter(({ severity }) => severity !== 'info').slice(-3);
  return html`<div class="notices" role="status">
    ${!transcript.linked && html`<p class="notice">The connection was lost; trying again…</p>`}
    ${transcript.interrupted && !transcript.running && html`<p class="notice">The last answer was interrupted.
      <button class="button quiet" id="resume" onClick=${() => attempt(() => transcript.resume())}>Go on with it</button></p>`}
    ${told.map(({ severity, text }) => html`<p class="notice ${severity}">${text}</p>`)}
  </div>`;
}

function useChatKeys({ transcript, selected, setSelected, list, field, deeds, stop, seen, setSeen }) {
  const current = () => {
    const index = transcript.indexOf(selected);
    return index < 0 ? null : transcript.at(index);
  };
  const step = (by) => {
    const from = transcript.indexOf(selected);
    const index = Math.max(0, Math.min(transcript.total - 1, from < 0 ? transcript.total - 1 : from + by));
    const message = transcript.at(index);
    if (!message) return;
    setSelected(message.id);
    list.current?.show(index);
  };
  const on = (kind, deed) => () => { const message = current(); if (message && (!kind || message.kind === kind)) deed(message); };
  const waits = (approve) => () => { const [call] = transcript.waiting.values(); if (call) deeds.decide(call, approve); };
  useKeys({
    i: () => field.current?.focus(),
    j: () => step(1),
    k: () => step(-1),
    e: on('instruction', deeds.edit),
    r: on('answer', deeds.retry),
    f: on(null, deeds.fork),
    w: on('answer', deeds.seen),
    '[': on(null, (message) => deeds.turn(message, -1)),
    ']': on(null, (message) => deeds.turn(message, 1)),
    a: waits(true),
    d: waits(false),
    x: () => transcript.running && stop(),
    ...(seen && { Escape: () => setSeen(null) }),
  });
}
