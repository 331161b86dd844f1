// What stands in a view that has nothing to show: yet, at all, or because something failed.
import { Component, html } from './view.js';

export function Empty({ children }) {
  return html`<div class="empty" role="status">${children}</div>`;
}

export function Failed({ error, again }) {
  return html`<div class="empty failed" role="alert">
    <p>${error.message}</p>
    ${error.status === 404 ? html`<a class="button" href="#/">Go to the start page</a>` : html`<button class="button" onClick=${again}>Try again</button>`}
  </div>`;
}

/** Its children; if they cannot be drawn, a word about that in their place, and the rest of the page stays. */
export class Guarded extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }

  render({ children }, { error }) {
    return error ? html`<p class="notice error" role="alert">Cannot display this: ${error.message}</p>` : children;
  }
}
