// Placeholders of a view: empty, loading or failed.
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

/** An error boundary: shows a notice instead of children that fail to render. */
export class Guarded extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }

  render({ children }, { error }) {
    return error ? html`<p class="notice error" role="alert">Cannot display this: ${error.message}</p>` : children;
  }
}
