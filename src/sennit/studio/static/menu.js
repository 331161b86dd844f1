// A drop-down menu that closes on a choice, on Escape and on a click elsewhere.
import { Icon } from './icons.js';
import { html, useEffect, useRef, useState } from './view.js';

/** `entries`: [label, action, class?], or null for a separator. */
export function Menu({ label, icon, entries }) {
  const [open, setOpen] = useState(false);
  const box = useRef(null);
  const button = useRef(null);
  useEffect(() => {
    if (!open) return undefined;
    box.current.querySelector('.menu-body button').focus();
    const outside = (event) => { if (!box.current.contains(event.target)) setOpen(false); };
    addEventListener('pointerdown', outside);
    return () => removeEventListener('pointerdown', outside);
  }, [open]);
  const keyed = (event) => {
    if (event.key === 'Escape' && open) { event.preventDefault(); setOpen(false); button.current.focus(); }
    if (event.key === 'Tab') setOpen(false);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !open) return;
    event.preventDefault();
    const all = [...box.current.querySelectorAll('.menu-body button')];
    all[(all.indexOf(document.activeElement) + step + all.length) % all.length].focus();
  };
  return html`<div class="menu" ref=${box} onKeyDown=${keyed}>
    <button class="icon-button" ref=${button} aria-label=${label} title=${label} aria-haspopup="menu" aria-expanded=${open}
      onClick=${() => setOpen(!open)}><${Icon} name=${icon} /></button>
    ${open && html`<div class="menu-body" role="menu">${entries.map((entry, index) => (entry === null
      ? html`<hr key=${index} role="separator" />`
      : html`<button key=${index} role="menuitem" class=${entry[2]} onClick=${() => { setOpen(false); entry[1](); }}>${entry[0]}</button>`))}</div>`}
  </div>`;
}
