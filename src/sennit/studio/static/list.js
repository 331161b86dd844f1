// A virtual list: only the visible rows are in the DOM. Rows may have any height; the scroll anchor stays in
// place while rows above are measured, and the end stays visible while messages arrive, unless the reader
// scrolled away. While a pointer is pressed nothing moves below it, so that a click hits its target.
import { Heights } from './heights.js';
import { Component, createRef, html } from './view.js';

const SPARE = 600;     // pixels drawn beyond each edge
const AT_END = 48;     // pixels from the end that still count as the end

export class VirtualList extends Component {
  box = createRef();
  rows = createRef();
  heights = new Heights(this.props.count, this.props.guess ?? 120);
  anchor = null;       // {index, offset}: the first row in sight, and how far it is scrolled out
  atEnd = true;
  pressed = false;     // whether a pointer is down in the list
  top = undefined;     // the scroll position when last read
  state = { from: 0, to: 0 };

  componentDidMount() {
    this.sizes = new ResizeObserver((entries) => this.#measure(entries));
    this.sizes.observe(this.box.current);
    this.#settle();
    this.#watchRows();
    this.props.control?.(this);
  }

  componentWillUnmount() {
    this.sizes.disconnect();
    this.props.control?.(null);
  }

  componentDidUpdate() {
    this.heights.resize(this.props.count);
    this.#watchRows();
    this.#settle();
  }

  /** Scroll a row near the top; corrected once its height is measured. */
  reveal(index) {
    this.top = undefined;
    this.#setEnd(false);
    this.anchor = { index, offset: -Math.min(80, this.box.current.clientHeight / 4) };
    this.#settle();
  }

  /** Scroll to a row, unless it is fully visible. */
  show(index) {
    const { scrollTop, clientHeight } = this.box.current;
    const whole = this.heights.before(index) >= scrollTop && this.heights.before(index + 1) <= scrollTop + clientHeight;
    if (!whole) this.reveal(index);
  }

  /** Scroll to the end, and stay there while it grows. */
  toEnd() {
    this.top = undefined;
    this.#setEnd(true);
    this.#settle();
  }

  #press = () => {
    this.#note();
    this.pressed = true;
    const life = new AbortController();
    const release = () => {
      life.abort();
      this.pressed = false;
      requestAnimationFrame(() => this.#settle());  // after the click
    };
    for (const end of ['pointerup', 'pointercancel']) addEventListener(end, release, { signal: life.signal });
  };

  #setEnd(end) {
    if (end !== this.atEnd) this.props.onEnd?.(end);
    this.atEnd = end;
  }

  #watchRows() {
    const now = new Set(this.rows.current.children);
    for (const row of this.watched ?? []) if (!now.has(row)) this.sizes.unobserve(row);
    for (const row of now) if (!this.watched?.has(row)) this.sizes.observe(row);
    this.watched = now;
  }

  #measure(entries) {
    for (const { target } of entries) {
      const index = Number(target.dataset?.index);
      if (target !== this.box.current && target.isConnected && index < this.heights.count) {
        this.heights.set(index, target.getBoundingClientRect().height);
      }
    }
    this.#settle();
  }

  // Scroll to the anchor, then draw the visible rows.
  #settle() {
    const box = this.box.current;
    if (!box) return;
    if (this.top !== undefined && box.scrollTop !== this.top && !this.pressed) this.#note();
    const held = this.pressed ? this.top + box.clientHeight : 0;  // a list that shrinks would move, too
    this.rows.current.style.paddingTop = `${this.heights.before(this.state.from)}px`;
    this.rows.current.style.height = `${Math.max(this.heights.total, held)}px`;
    if (this.atEnd && !this.pressed) box.scrollTop = box.scrollHeight;
    else if (this.anchor) {
      const top = this.heights.before(this.anchor.index) + this.anchor.offset;
      if (Math.abs(box.scrollTop - top) >= 1) box.scrollTop = top;
    }
    this.top = box.scrollTop;
    this.#draw();
  }

  #scrolled = () => {
    if (!this.box.current) return;  // an unmounted list may get a last scroll event
    this.#note();
    this.#draw();
  };

  // Read the scroll position. Also before scrolling by program: the event of the reader's own scrolling
  // may still be queued, and takes precedence.
  #note() {
    const box = this.box.current;
    this.top = box.scrollTop;
    const index = this.heights.at(box.scrollTop);
    this.anchor = { index, offset: box.scrollTop - this.heights.before(index) };
    this.#setEnd(box.scrollHeight - box.scrollTop - box.clientHeight < AT_END);
  }

  #draw() {
    const { scrollTop, clientHeight } = this.box.current;
    const from = this.heights.at(Math.max(0, scrollTop - SPARE));
    const to = Math.min(this.props.count, this.heights.at(scrollTop + clientHeight + SPARE) + 1);
    if (from === this.state.from && to === this.state.to) return;
    this.setState({ from, to });
    this.props.onRange?.(from, to);
  }

  render({ count, row, keyOf, label }, { from, to }) {
    const shown = [];
    for (let index = from; index < Math.min(to, count); index += 1) {
      shown.push(html`<div class="row" role="listitem" aria-setsize=${count} aria-posinset=${index + 1}
        data-index=${index} key=${keyOf(index)}>${row(index)}</div>`);
    }
    return html`<div class="list" ref=${this.box} onScroll=${this.#scrolled} onPointerDown=${this.#press} tabindex="0" aria-label=${label}>
      <div class="rows" role="list" ref=${this.rows}>${shown}</div>
    </div>`;
  }
}
