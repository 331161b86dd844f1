// One message with its actions. The sender is shown by position and name, not by colour alone; the content
// is plain text or sanitized Markdown.
import { open, path } from './api.js';
import { Icon } from './icons.js';
import { Markdown } from './markdown.js';
import { ToolCall, ToolResult } from './tools.js';
import { keepUnsent, unsent } from './unsent.js';
import { classes, html, useLayoutEffect, useRef, useState } from './view.js';
import { fully, line, many, plainly, when } from './words.js';

const LONG = 4_000;
const WHO = { instruction: 'You', answer: 'Model', system: 'System', record: 'Record', call: 'Tool call', result: 'Tool result' };
const who = ({ kind, type }) => (kind === 'custom' ? line(type, 40) : WHO[kind]);

/** `deeds`: the actions on a message: edit, retry, fork, copy, judge, seen, turn, decide. */
export function MessageRow({ message, selected, editing, deeds, moving, score, tool, state, told }) {
  if (!message) return html`<div class="message loading" aria-busy="true"><div class="ghost"></div></div>`;
  const kind = message.kind;
  return html`<article class=${classes('message', kind, selected && 'selected', message.draft && 'draft', message.steered && 'steered', message.sending && 'sending', message.interrupted && 'interrupted')} data-message=${message.id}
      aria-label=${who(message)} aria-current=${selected ? 'true' : undefined} onClick=${() => deeds.select(message)}>
    ${kind === 'call' && html`<${ToolCall} message=${message} state=${state} decide=${deeds.decide} />`}
    ${kind === 'result' && html`<${ToolResult} message=${message} tool=${tool} />`}
    ${kind !== 'call' && kind !== 'result' && html`<${Said} message=${message} editing=${editing} deeds=${deeds} moving=${moving} score=${score} told=${told} />`}
  </article>`;
}

function Said({ message, editing, deeds, moving, score, told }) {
  const placed = !message.draft && !message.steered && !message.sending && !message.interrupted;
  const sender = message.kind === 'instruction' && !['user', 'USER', null, undefined].includes(message.sender) ? message.sender : who(message);
  return html`
    <header class="message-head">
      <span class="who">${sender}</span>
      ${message.kind === 'answer' && message.metadata?.model && html`<span class="model">${line(plainly(message.metadata.model), 40)}</span>`}
      ${message.created_at && html`<time datetime=${message.created_at} title=${fully(message.created_at)}>${when(message.created_at)}</time>`}
      <${Versions} message=${message} turn=${deeds.turn} />
      ${stateOf(message) && html`<span class="badge">${stateOf(message)}</span>`}
      ${placed && html`<${Deeds} message=${message} deeds=${deeds} moving=${moving} score=${score} />`}
    </header>
    ${message.reasoning && html`<details class="reasoning" open=${message.draft && !message.text}>
      <summary>Reasoning</summary><${Markdown} text=${message.reasoning} /></details>`}
    ${editing ? html`<${Editor} message=${message} deeds=${deeds} moving=${moving} />` : html`<${Body} message=${message} />`}
    ${placed && told?.length > 0 && html`<button class="used" title="Show the prompt" onClick=${(event) => { event.stopPropagation(); deeds.seen(message); }}>
      <${Icon} name="memory" />Used ${listed(told)}</button>`}`;
}

// The label of a message that is queued, being sent, or incomplete.
function stateOf({ steered, sending, interrupted, metadata }) {
  if (steered) return 'Queued';
  if (sending) return 'Sending…';
  if (interrupted || metadata?.finish_reason === 'interrupted') return 'Interrupted';
  return metadata?.finish_reason === 'cancelled' ? 'Stopped' : null;
}

const CONTEXT_LABELS = {
  profile: () => 'your profile',
  memory: (count) => many(count, 'memory', 'memories'),
  summary: (count) => many(count, 'summary', 'summaries'),
  recalled: (count) => `${many(count, 'message')} from other conversations`,
};

// The retrieved items in the prompt, counted by kind: "your profile and 2 memories".
function listed(told) {
  const counts = Object.entries(CONTEXT_LABELS).map(([kind, words]) => [told.filter((item) => item.kind === kind).length, words]);
  return new Intl.ListFormat('en').format(counts.filter(([count]) => count).map(([count, words]) => words(count)));
}

// A picture that is stored with its bytes, as far as it is small; else its type and size, or its address.
const STORED = /^sennit-blob:sha256:([0-9a-f]{64})\?type=(.+)&size=(\d+)$/;
const SHOWN_BYTES = 5_000_000;

function Picture({ image }) {
  const [, hash, , size] = STORED.exec(image) ?? [];
  const [shown, show] = useState(null);
  useLayoutEffect(() => {
    show(null);
    if (!hash || size > SHOWN_BYTES) return undefined;
    const leaving = new AbortController();
    open('GET', path('blobs', hash), { signal: leaving.signal })
      .then((response) => response.blob())
      .then(dataUrl)
      .then((url) => leaving.signal.aborted || show(url))
      .catch(() => {});  // then its type and size are shown
    return () => leaving.abort();
  }, [hash]);
  const text = storedText(image);
  return shown ? html`<img class="picture-shown" src=${shown} alt=${text} />` : html`<p class="picture-link">🖼 ${text}</p>`;
}

// The type and size of what is stored with its bytes, or an address.
function storedText(url) {
  const [, hash, type, size] = STORED.exec(url) ?? [];
  return hash ? `${type}, ${Number(size).toLocaleString('en')} bytes` : /^data:([^;,]*)/.exec(url)?.[1] ?? url;
}

function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = reject;
    reader.readAsDataURL(blob);
  });
}

function Body({ message }) {
  const images = message.images ?? [];
  const [done, growing] = message.draft ? halves(message.text) : ['', message.text];
  return html`<div class="body">
    ${done && html`<${Markdown} text=${done} />`}
    ${message.text ? html`<${Markdown} text=${growing} />` : message.draft && html`<span class="dots" aria-label="Answering">…</span>`}
    ${images.map((image) => html`<${Picture} image=${image} />`)}
    ${(message.files ?? []).map((file) => html`<p class="picture-link">📎 ${[file.name, storedText(file.url)].filter(Boolean).join(': ')}</p>`)}
    ${message.draft && message.text && html`<span class="caret" aria-hidden="true"></span>`}
  </div>`;
}

// Split a long streaming text, so that only its last paragraph is rendered again.
function halves(text) {
  for (let cut = text.length > LONG ? text.lastIndexOf('\n\n') : -1; cut > 0; cut = text.lastIndexOf('\n\n', cut - 1)) {
    const done = text.slice(0, cut);
    if (done.split('```').length % 2) return [done, text.slice(cut)];  // not inside a code block
  }
  return ['', text];
}

/** ‹ 2 / 3 › where other branches have other messages at the same position. */
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

function Deeds({ message, deeds, moving, score }) {
  const judge = (thumb) => (one) => deeds.judge(one, thumb);
  const buttons = [
    message.kind === 'instruction' && ['edit', 'Edit on a new branch', deeds.edit],
    message.kind === 'answer' && ['retry', 'Retry on a new branch', deeds.retry, undefined, moving],
    message.kind !== 'system' && ['branch', 'Fork after this message', deeds.fork, undefined, moving],
    message.kind === 'answer' && ['eye', 'Show the prompt', deeds.seen],
    message.text && ['copy', 'Copy the text', deeds.copy],
    message.kind === 'answer' && ['thumb', 'Good answer', judge('up'), score === 1],
    message.kind === 'answer' && ['thumb', 'Bad answer', judge('down'), score === 0],
  ].filter(Boolean);
  return html`<span class=${classes('deeds', score !== undefined && 'judged')}>${buttons.map(([icon, words, deed, pressed, busy]) => html`
    <button key=${words} class="icon-button small" title=${words} aria-label=${words} aria-pressed=${pressed} disabled=${busy}
      onClick=${(event) => { event.stopPropagation(); deed(message); }}><${Icon} name=${icon} turned=${words === 'Bad answer'} /></button>`)}
  </span>`;
}

function Editor({ message, deeds, moving }) {
  const [text, setText] = useState(unsent(message.id) ?? message.text);
  const field = useRef(null);
  useLayoutEffect(() => { field.current.focus({ preventScroll: true }); field.current.setSelectionRange(text.length, text.length); }, []);
  const write = (words) => { setText(words); keepUnsent(message.id, words); };
  const leave = () => { keepUnsent(message.id, ''); deeds.edit(null); };
  const send = async () => {  // a rejected text stays in the field
    if (text.trim() && await deeds.edited(message, text)) keepUnsent(message.id, '');
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
      <button class="button primary" disabled=${!text.trim() || moving} onClick=${send}>${moving ? 'Sending…' : 'Send on a new branch'}</button>
    </div>
  </div>`;
}
