// Modal dialogs: confirmations, forms and the list of shortcuts. The browser's <dialog> traps the focus and
// restores it.
import { html, useLayoutEffect, useRef, useState } from './view.js';

let show = null;

/** Show a dialog; resolve to the value passed to `close`, or null if dismissed. A route change closes it unless `stays`. */
export function ask(title, render, { stays = false } = {}) {
  return new Promise((resolve) => show({ title, render, resolve, stays }));
}

/** Ask for confirmation. */
export function confirmed(title, words, action) {
  return ask(title, (close) => html`
    <p>${words}</p>
    <div class="dialog-actions">
      <button class="button quiet" onClick=${() => close(null)}>Cancel</button>
      <button class="button danger" onClick=${() => close(true)}>${action}</button>
    </div>`);
}

/**
 * Show a form: `fields` are [name, label, 'long' for a textarea, initial text]. Resolves to {name: text}, or null.
 * `work` runs with the values first; if it fails, the dialog stays open and shows the error.
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
  const outside = useRef(false);  // whether the press began outside: selecting text may end there
  useLayoutEffect(() => { show = setOpen; }, []);
  useLayoutEffect(() => { if (open) box.current.showModal(); }, [open]);
  useLayoutEffect(() => {
    if (!open || open.stays) return undefined;
    const dismiss = () => box.current.close();  // "this session" would be another one
    addEventListener('hashchange', dismiss);
    return () => removeEventListener('hashchange', dismiss);
  }, [open]);
  if (!open) return null;
  // Close through the browser, which restores the focus.
  const close = (value) => { open.resolve(value); box.current.close(); };
  return html`<dialog ref=${box} class="dialog" aria-labelledby="dialog-title" onClose=${() => { open.resolve(null); setOpen(null); }}
      onPointerDown=${(event) => { outside.current = event.target === box.current; }}
      onClick=${(event) => outside.current && event.target === box.current && close(null)}>
    <div class="dialog-body"><h2 id="dialog-title">${open.title}</h2>${open.render(close)}</div>
  </dialog>`;
}
