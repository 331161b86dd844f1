// Windows above the page: questions that must be answered, and the list of shortcuts. The browser's own
// <dialog> keeps the focus inside and gives it back.
import { html, useLayoutEffect, useRef, useState } from './view.js';

let show = null;

/** Ask a person; resolves to what `render(close)` closes with, or null. */
export function ask(title, render) {
  return new Promise((resolve) => show({ title, render, resolve }));
}

/** Ask whether to go on. */
export function confirmed(title, words, action) {
  return ask(title, (close) => html`
    <p>${words}</p>
    <div class="dialog-actions">
      <button class="button quiet" onClick=${() => close(null)}>Cancel</button>
      <button class="button danger" onClick=${() => close(true)}>${action}</button>
    </div>`);
}

/** Ask for texts: `fields` are [name, label, 'long' for many lines, what it says]. Resolves to {name: text}, or null. */
export function asked(title, fields, action) {
  const send = (close) => (event) => {
    event.preventDefault();
    close(Object.fromEntries(fields.map(([name]) => [name, event.target.elements[name].value.trim()])));
  };
  return ask(title, (close) => html`<form onSubmit=${send(close)}>
    ${fields.map(([name, label, size, text], index) => html`<label key=${name} class="field">${label}${size === 'long'
      ? html`<textarea name=${name} rows="3"></textarea>`
      : html`<input name=${name} value=${text} autocomplete="off" autofocus=${index === 0} onFocus=${(event) => event.target.select()} />`}</label>`)}
    <div class="dialog-actions">
      <button type="button" class="button quiet" onClick=${() => close(null)}>Cancel</button>
      <button class="button primary">${action}</button>
    </div></form>`);
}

export function Dialogs() {
  const [open, setOpen] = useState(null);
  const box = useRef(null);
  useLayoutEffect(() => { show = setOpen; }, []);
  useLayoutEffect(() => { if (open) box.current.showModal(); }, [open]);
  if (!open) return null;
  // Closed by the browser, so that the focus goes back to where it was.
  const close = (value) => { open.resolve(value); box.current.close(); };
  return html`<dialog ref=${box} class="dialog" aria-labelledby="dialog-title" onClose=${() => { open.resolve(null); setOpen(null); }}
      onClick=${(event) => event.target === box.current && close(null)}>
    <div class="dialog-body"><h2 id="dialog-title">${open.title}</h2>${open.render(close)}</div>
  </dialog>`;
}
