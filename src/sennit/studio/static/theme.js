// The theme: light, dark or system; stored on this device.
import { onDevice } from './kept.js';
import { html, useEffect, useState } from './view.js';
import { Icon } from './icons.js';

const KEEP = 'sennit.theme';
const NEXT = { auto: 'light', light: 'dark', dark: 'auto' };
const LABELS = { auto: 'system', light: 'light', dark: 'dark' };

const kept = onDevice.get(KEEP);
let chosen = kept in NEXT ? kept : 'auto';
document.documentElement.dataset.theme = chosen;  // before anything is drawn

export function ThemeToggle() {
  const [theme, setTheme] = useState(chosen);
  useEffect(() => {
    chosen = theme;
    document.documentElement.dataset.theme = theme;
    onDevice.set(KEEP, theme);
    dispatchEvent(new Event('themechange'));
  }, [theme]);
  const words = `Theme: ${LABELS[theme]}. Change`;
  return html`<button class="icon-button" id="theme" title=${words} aria-label=${words}
    onClick=${() => setTheme(NEXT[theme])}><${Icon} name=${{ auto: 'half', light: 'sun', dark: 'moon' }[theme]} /></button>`;
}
