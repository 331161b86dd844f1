// Windows above the page: questions that must be answered, and the list of shortcuts. The browser's own
// <dialog> keeps the focus inside and gives it back.
import { html, useLayoutEffect, useRef, useState } from './view.js';

let show = null;

/** Ask a person; resolves to what `render(close)` closes with, or null: also when the view is left, unless it `stays`. */
export function ask(title, render, { stays = false } = {}) {
  return new Promise((resolve) => show({ title, render, resolve, stays }));
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

/**
 * Ask for texts: `fields` are [name, label, 'long' for many lines, what it says]. Resolves to {name: text}, or null.
 * `work` is done with them before that; if it fails, the window says why and stays, with what was written.
 */
export function asked(title, fields, action, work) {
  return ask(title, (close) => html`<${Form} fields=${fields} action=${action} work=${work} close=${close} />`);
}

function Form({ fields, action, work, close }) {
  const [{ busy, error }, setState] = useState({});
  const send = async (event) => {
    event.preventDefault();
    if (busy) return;
    const { elements } = event.target;
    const given = Object.fromEntries(fields.map(([name]) => [name, elements[name].value.trim()]));
    setState({ busy: true });
    try {
      await work?.(given);
      close(given);
    } catch (refused) {
      setState({ error: refused });
    }
  };
  return html`<form onSubmit=${send}>
    ${fields.map(([name, label, size, text], index) => html`<label key=${name} class="field">${label}${size === 'long'
      ? html`<textarea name=${name} rows="3"></textarea>`
      : html`<input name=${name} defaultValue=${text} autocomplete="off" autofocus=${index === 0} onFocus=${(event) => event.target.select()} />`}</label>`)}
    ${error && html`<p class="notice error" role="alert">${error.message}</p>`}
    <div class="dialog-actions">
      <button type="button" class="button quiet" onClick=${() => close(null)}>Cancel</button>
      <button class="button primary" disabled=${busy}>${action}</button>
    </div></form>`;
}

export function Dialogs() {
  const [open, setOpen] = useState(null);
  const box = useRef(null);
  const outside = useRef(false);  // whether the pointer was pressed there: a text may be marked beyond the edge
  useLayoutEffect(() => { show = setOpen; }, []);
  useLayoutEffect(() => { if (open) box.current.showModal(); }, [open]);
  useLayoutEffect(() => {
    if (!open || open.stays) return undefined;
    const left = () => box.current.close();  // "this session" would be another one
    addEventListener('hashchange', left);
    return () => removeEventListener('hashchange', left);
  }, [open]);
  if (!open) return null;
  // Closed by the browser, so that the focus goes back to where it was.
  const close = (value) => { open.resolve(value); box.current.close(); };
  return html`<dialog ref=${box} class="dialog" aria-labelledby="dialog-title" onClose=${() => { open.resolve(null); setOpen(null); }}
      onPointerDown=${(event) => { outside.current = event.target === box.current; }}
      onClick=${(event) => outside.current && event.target === box.current && close(null)}>
    <div class="dialog-body"><h2 id="dialog-title">${open.title}</h2>${open.render(close)}</div>
  </dialog>`;
}
