// Toasts: short messages about results and errors, announced by screen readers.
import { html, useLayoutEffect, useState } from './view.js';

const TOAST_MS = 6_000;
let add = () => {};

export function toast(words, kind = 'news') {
  add({ words, kind, id: crypto.getRandomValues(new Uint32Array(1))[0] });
}

/** Run `work`; on an error show a toast and resolve to null. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name !== 'AbortError' && error.status !== 401) toast(error.message, 'failed');
    if (error.status === undefined && error.name !== 'AbortError') console.error(error);
    return null;
  }
}

export function Toasts() {
  const [toasts, setToasts] = useState([]);
  useLayoutEffect(() => {
    add = (toast) => {
      setToasts((now) => [...now.slice(-3), toast]);
      setTimeout(() => setToasts((now) => now.filter(({ id }) => id !== toast.id)), TOAST_MS);
    };
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.map(({ id, words, kind }) => html`<p key=${id} class="toast ${kind}">${words}</p>`)}
  </div>`;
}
