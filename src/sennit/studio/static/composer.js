// The message field: grows with the text, sends on Enter, stores a draft per branch. During an answer it
// can stop the answer or send another message to it.
import { Icon } from './icons.js';
import { keepUnsent, onUnsent, unsent } from './unsent.js';
import { html, useLayoutEffect, useRef, useState } from './view.js';

let writing = false;  // whether a text was sent from the field: the next view focuses its own

/** Focus a field, unless another one has the focus. Not on a phone, where the keyboard would cover the page. */
export function offerField(field) {
  const elsewhere = document.activeElement?.matches('input, textarea, select') || document.querySelector('dialog[open]');
  if (!elsewhere && matchMedia('(hover: hover)').matches) field?.focus();
}

/** `ask` and `choose` come from useChoice; `onSend` resolves to true if the text was accepted. */
export function Composer({ branch, running = false, stopping = false, first = false, models, ask, choose, onSend, onStop, control }) {
  const [text, setText] = useState(unsent(branch) ?? '');
  const [busy, setBusy] = useState(false);
  const sending = useRef(false);
  const field = useRef(null);
  useLayoutEffect(() => {
    control(field.current);
    if (first || writing) offerField(field.current);
    writing = false;
    return onUnsent(branch, setText);
  }, []);
  useLayoutEffect(() => {
    field.current.style.height = 'auto';
    field.current.style.height = `${Math.min(field.current.scrollHeight, 240)}px`;
  }, [text]);
  const write = (words) => keepUnsent(branch, words);
  const send = async () => {
    if (!text.trim() || sending.current) return;
    sending.current = true;
    setBusy(true);
    writing = document.activeElement === field.current;
    write('');
    if (!await onSend(text)) write([text, unsent(branch)].filter(Boolean).join('\n'));  // before what was written since
    sending.current = false;
    setBusy(false);
  };
  const keyed = (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    if (event.key === 'Escape') field.current.blur();
  };
  return html`<form class="composer" onSubmit=${(event) => { event.preventDefault(); send(); }}>
    <textarea id="say" ref=${field} rows="1" value=${text} placeholder=${running ? 'Add a message while it answers' : 'Write a message'} aria-label="Message"
      onInput=${(event) => write(event.target.value)} onKeyDown=${keyed}></textarea>
    <div class="composer-bar">
      <${Choice} models=${models} ask=${ask} choose=${choose} />
      <span class="spring"></span>
      ${busy && html`<span class="hint" role="status">Sending…</span>`}
      ${running && html`<button type="button" class="button stop" id="stop" disabled=${stopping} onClick=${onStop}><${Icon} name="stop" />${stopping ? 'Stopping…' : 'Stop'}</button>`}
      ${(!running || text.trim()) && html`<button class="button primary send" disabled=${!text.trim() || busy} aria-label="Send" title="Send (Enter)"><${Icon} name="send" /></button>`}
    </div>
  </form>`;
}

function Choice({ models, ask, choose }) {
  const chosen = models.find(({ name }) => name === ask.model);
  return html`${models.length > 0 && html`<label class="pick"><span class="sr">Model</span>
      <select aria-label="Model" value=${ask.model} onChange=${(event) => choose({ model: event.target.value })}>
        ${models.map(({ name }) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select></label>`}
    ${chosen?.tiny && html`<span class="hint" title="A small demo model; pass --model for a better one">tiny model: it makes things up</span>`}
    <label class="tick" title="Give the model relevant memories"><input type="checkbox" checked=${ask.memory} onChange=${(event) => choose({ memory: event.target.checked })} /> Use memory</label>`;
}
