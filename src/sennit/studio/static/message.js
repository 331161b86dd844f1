// One message with what can be done to it. Who says it is told by its place and a word, not by colour
// alone; whatever it holds is shown as text or as cleaned Markdown.
import { Icon } from './icons.js';
import { Markdown } from './markdown.js';
import { ToolCall, ToolResult } from './tools.js';
import { classes, html, useLayoutEffect, useRef, useState } from './view.js';
import { fully, line, when } from './words.js';

const LONG = 4_000;
const WHO = { instruction: 'You', answer: 'Model', system: 'System', record: 'Record', call: 'Tool call', result: 'Tool result' };

/** `deeds`: what the chat can do with a message: edit, retry, fork, copy, judge, seen, turn, decide. */
export function MessageRow({ message, selected, editing, deeds, score, tool, waiting, working }) {
  if (!message) return html`<div class="message loading" aria-busy="true"><div class="ghost"></div></div>`;
  const kind = message.kind;
  return html`<article class=${classes('message', kind, selected && 'selected', message.draft && 'draft', message.steered && 'steered')} data-message=${message.id}
      aria-label=${WHO[kind]} aria-current=${selected ? 'true' : undefined} onClick=${() => deeds.select(message)}>
    ${kind === 'call' && html`<${ToolCall} message=${message} waiting=${waiting} working=${working} decide=${deeds.decide} />`}
    ${kind === 'result' && html`<${ToolResult} message=${message} tool=${tool} />`}
    ${kind !== 'call' && kind !== 'result' && html`<${Said} message=${message} editing=${editing} deeds=${deeds} score=${score} />`}
  </article>`;
}

function Said({ message, editing, deeds, score }) {
  const sender = message.kind === 'instruction' && !['user', 'USER', null, undefined].includes(message.sender) ? message.sender : WHO[message.kind];
  return html`
    <header class="message-head">
      <span class="who">${sender}</span>
      ${message.kind === 'answer' && message.metadata?.model && html`<span class="model">${line(message.metadata.model, 40)}</span>`}
      ${message.created_at && html`<time datetime=${message.created_at} title=${fully(message.created_at)}>${when(message.created_at)}</time>`}
      <${Versions} message=${message} turn=${deeds.turn} />
      ${message.steered && html`<span class="badge">Comes next</span>`}
      ${!message.draft && !message.steered && html`<${Deeds} message=${message} deeds=${deeds} score=${score} />`}
    </header>
    ${message.reasoning && html`<details class="reasoning" open=${message.draft && !message.text}>
      <summary>Thinking aloud</summary><${Markdown} text=${message.reasoning} /></details>`}
    ${editing ? html`<${Editor} message=${message} deeds=${deeds} />` : html`<${Body} message=${message} />`}`;
}

function Body({ message }) {
  const images = message.images ?? [];
  const [done, growing] = message.draft ? halves(message.text) : ['', message.text];
  return html`<div class="body">
    ${done && html`<${Markdown} text=${done} />`}
    ${message.text ? html`<${Markdown} text=${growing} />` : message.draft && html`<span class="dots" aria-label="Answering">…</span>`}
    ${images.map((image) => html`<p class="picture-link">🖼 ${typeof image === 'string' ? image : image.url}</p>`)}
    ${message.draft && message.text && html`<span class="caret" aria-hidden="true"></span>`}
  </div>`;
}

// A long text that is still being said is drawn anew from its last paragraph on only.
function halves(text) {
  for (let cut = text.length > LONG ? text.lastIndexOf('\n\n') : -1; cut > 0; cut = text.lastIndexOf('\n\n', cut - 1)) {
    const done = text.slice(0, cut);
    if (done.split('```').length % 2) return [done, text.slice(cut)];  // not inside of code
  }
  return ['', text];
}

/** ‹ 2 / 3 › where branches hold other messages at the same place. */
function Versions({ message, turn }) {
  const all = message.siblings ?? [];
  if (all.length < 2) return null;
  const place = all.findIndex((one) => one.message_id === message.id);
  return html`<span class="versions" role="group" aria-label="Versions of this message">
    <button class="icon-button small" aria-label="Previous version" disabled=${place === 0} onClick=${() => turn(message, -1)}><${Icon} name="left" /></button>
    <span class="version">${place + 1} / ${all.length}</span>
    <button class="icon-button small" aria-label="Next version" disabled=${place === all.length - 1} onClick=${() => turn(message, 1)}><${Icon} name="right" /></button>
  </span>`;
}

function Deeds({ message, deeds, score }) {
  const judge = (thumb) => (one) => deeds.judge(one, thumb);
  const buttons = [
    message.kind === 'instruction' && ['edit', 'Edit on a new branch', deeds.edit],
    message.kind === 'answer' && ['retry', 'Retry on a new branch', deeds.retry],
    message.kind !== 'system' && ['branch', 'Fork after this message', deeds.fork],
    message.kind === 'answer' && ['eye', 'What the model saw', deeds.seen],
    message.text && ['copy', 'Copy the text', deeds.copy],
    message.kind === 'answer' && ['thumb', 'A good answer', judge('up'), score === 1],
    message.kind === 'answer' && ['thumb', 'A bad answer', judge('down'), score === 0],
  ].filter(Boolean);
  return html`<span class=${classes('deeds', score !== undefined && 'judged')}>${buttons.map(([icon, words, deed, pressed]) => html`
    <button key=${words} class="icon-button small" title=${words} aria-label=${words} aria-pressed=${pressed}
      onClick=${(event) => { event.stopPropagation(); deed(message); }}><${Icon} name=${icon} turned=${words === 'A bad answer'} /></button>`)}
  </span>`;
}

const edits = new Map();  // message id → its new text, also while the message is scrolled out of sight

function Editor({ message, deeds }) {
  const [text, setText] = useState(edits.get(message.id) ?? message.text);
  const field = useRef(null);
  useLayoutEffect(() => { field.current.focus({ preventScroll: true }); field.current.setSelectionRange(text.length, text.length); }, []);
  const write = (words) => { setText(words); edits.set(message.id, words); };
  const leave = () => { edits.delete(message.id); deeds.edit(null); };
  const send = async () => {  // a text that was not taken stays here
    if (text.trim() && await deeds.edited(message, text)) edits.delete(message.id);
  };
  const keyed = (event) => {
    if (event.key === 'Escape') leave();
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
  };
  return html`<div class="editor">
    <textarea ref=${field} aria-label="New text" rows=${Math.min(12, text.split('\n').length + 1)} value=${text}
      onInput=${(event) => write(event.target.value)} onKeyDown=${keyed}></textarea>
    <div class="editor-actions">
      <span class="hint">The old version stays on its branch.</span>
      <button class="button quiet" onClick=${leave}>Cancel</button>
      <button class="button primary" disabled=${!text.trim()} onClick=${send}>Send on a new branch</button>
    </div>
  </div>`;
}
