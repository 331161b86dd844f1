// Short news that needs no answer: what was done, or why it was not. Read aloud by screen readers.
import { html, useLayoutEffect, useState } from './view.js';

const STAYS = 6_000;
let add = () => {};

export function toast(words, kind = 'news') {
  add({ words, kind, id: crypto.getRandomValues(new Uint32Array(1))[0] });
}

/** Do something that may be refused; tell why if it is. Resolves to null then. */
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
      setTimeout(() => setToasts((now) => now.filter(({ id }) => id !== toast.id)), STAYS);
    };
  }, []);
  return html`<div class="toasts" role="status" aria-live="polite">
    ${toasts.map(({ id, words, kind }) => html`<p key=${id} class="toast ${kind}">${words}</p>`)}
  </div>`;
}
