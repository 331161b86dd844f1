// Where a person writes: grows with the text, sends on Enter, keeps an unsent text per branch while the
// page is open, and becomes the stop button while an answer comes.
import { Icon } from './icons.js';
import { html, useEffect, useLayoutEffect, useRef, useState } from './view.js';

const unsent = new Map();

export function Composer({ branch, running, models, model, onModel, remember, onRemember, onSend, onStop, control }) {
  const [text, setText] = useState(unsent.get(branch) ?? '');
  const field = useRef(null);
  useEffect(() => setText(unsent.get(branch) ?? ''), [branch]);
  useEffect(() => { control?.(field.current); }, []);
  useLayoutEffect(() => {
    field.current.style.height = 'auto';
    field.current.style.height = `${Math.min(field.current.scrollHeight, 240)}px`;
  }, [text]);
  const write = (words) => { setText(words); unsent.set(branch, words); };
  const send = async () => {
    if (!text.trim() || running) return;
    write('');
    if (!await onSend(text)) write(text);
  };
  const keyed = (event) => {
    if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
    if (event.key === 'Escape') field.current.blur();
  };
  const chosen = models.find(({ name }) => name === model);
  return html`<form class="composer" onSubmit=${(event) => { event.preventDefault(); send(); }}>
    <textarea id="say" ref=${field} rows="1" value=${text} placeholder="Say something" aria-label="Message"
      onInput=${(event) => write(event.target.value)} onKeyDown=${keyed}></textarea>
    <div class="composer-bar">
      <label class="pick"><span class="sr">Model</span>
        <select aria-label="Model" value=${model} onChange=${(event) => onModel(event.target.value)}>
          ${models.map(({ name }) => html`<option key=${name} value=${name}>${name}</option>`)}
        </select></label>
      ${chosen?.tiny && html`<span class="hint" title="It shows how everything works; pass --model for a better one">tiny: it makes things up</span>`}
      <label class="tick"><input type="checkbox" checked=${remember} onChange=${(event) => onRemember(event.target.checked)} /> Use memory</label>
      <span class="spring"></span>
      ${running
        ? html`<button type="button" class="button stop" id="stop" onClick=${onStop}><${Icon} name="stop" />Stop</button>`
        : html`<button class="button primary send" disabled=${!text.trim()} aria-label="Send"><${Icon} name="send" /></button>`}
    </div>
  </form>`;
}
