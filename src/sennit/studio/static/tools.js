// Cards for tool calls and results, with the buttons that approve or deny a call.
import { Icon } from './icons.js';
import { keepUnsent, unsent } from './unsent.js';
import { classes, html, useState } from './view.js';
import { line, plainly, visible } from './words.js';

const LONG = 600;

const STATES = { waiting: 'Needs approval', deciding: 'Sending the decision…', working: 'Running…', passed: 'Not run: the conversation continued without it' };

/** `state`: a key of STATES, or null for a call that has its result. */
export function ToolCall({ message, state, decide }) {
  const { function: name, arguments: given } = message.call;
  const waiting = state === 'waiting' || state === 'deciding';
  return html`<div class=${classes('card', waiting && 'asks')}>
    <header><${Icon} name="tool" /><b class="tool-name">${name}</b>
      ${state && html`<span class="badge ${waiting ? 'asks' : ''}">${STATES[state]}</span>`}</header>
    <${Arguments} given=${given} />
    ${waiting && html`<${Decision} message=${message} decide=${decide} busy=${state === 'deciding'} />`}
  </div>`;
}

function Arguments({ given }) {
  if (given === null || typeof given !== 'object' || Array.isArray(given)) return html`<${Value} value=${given} />`;
  const fields = Object.entries(given);
  if (!fields.length) return html`<p class="hint">No arguments</p>`;
  return html`<dl class="arguments">${fields.map(([name, value]) => html`<div key=${name}><dt>${visible(name)}</dt><dd><${Value} value=${value} /></dd></div>`)}</dl>`;
}

function Decision({ message, decide, busy }) {
  const [reason, setReason] = useState(unsent(message.id) ?? '');
  const write = (words) => { setReason(words); keepUnsent(message.id, words); };
  return html`<div class="decision">
    <input aria-label="Reason for denying" placeholder="Why deny it? (optional)" value=${reason} onInput=${(event) => write(event.target.value)} />
    <button class="button" disabled=${busy} onClick=${() => decide(message, false)}>Deny</button>
    <button class="button primary" disabled=${busy} onClick=${() => decide(message, true)}><${Icon} name="check" />Approve</button>
  </div>`;
}

/** `tool` is the name of the called tool, if known. */
export function ToolResult({ message, tool }) {
  const { result, error, success } = message.result;
  const value = success ? result : error;
  return html`<details class=${classes('card', 'outcome', !success && 'failed')} open=${!success}>
    <summary><span class="badge ${success ? 'good' : 'bad'}">${success ? 'Result' : 'Failed'}</span>
      ${tool && html`<b class="tool-name">${tool}</b>`}
      <span class="peek">${line(typeof value === 'string' ? value : JSON.stringify(value), 120)}</span></summary>
    <${Value} value=${value} />
  </details>`;
}

function Value({ value }) {
  const [whole, setWhole] = useState(false);
  const text = visible(plainly(value));
  const cut = text.length > LONG && !whole;
  return html`<div class="value"><pre>${cut ? `${text.slice(0, LONG)}…` : text}</pre>
    ${cut && html`<button class="button quiet" onClick=${() => setWhole(true)}>Show all ${text.length} characters</button>`}</div>`;
}
