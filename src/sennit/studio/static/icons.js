// The page's signs, drawn as lines on a 16 × 16 field in the colour of the text beside them.
import { html } from './view.js';

const LINES = {
  branch: 'M4 2v12M4 9c6 0 8-2 8-6M12 3m-1.5 0a1.5 1.5 0 1 0 3 0a1.5 1.5 0 1 0-3 0',
  check: 'M3 8.5l3.5 3.5L13 4.5',
  close: 'M4 4l8 8M12 4l-8 8',
  copy: 'M5.5 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3',
  down: 'M4 6l4 4 4-4',
  edit: 'M3 13l.6-3L11 2.6l2.4 2.4L6 12.4zM9.5 4.1l2.4 2.4',
  eye: 'M1.5 8C3 5 5.3 3.5 8 3.5S13 5 14.5 8C13 11 10.7 12.5 8 12.5S3 11 1.5 8zM8 6a2 2 0 1 0 0 4a2 2 0 1 0 0-4',
  half: 'M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12M8 2v12M8 5l4.5-1M8 8h6M8 11l4.5 1',
  help: 'M8 2a6 6 0 1 0 0 12a6 6 0 1 0 0-12M6.3 6.3c.2-2 3.6-2 3.5.1C9.800 7.700 8 7.700 8 9.200M8 11v.4',
  left: 'M10 4L6 8l4 4',
  memory: 'M3 4c0-2.200 10-2.200 10 0v8c0 2.200-10 2.200-10 0zM3 4c0 2.200 10 2.200 10 0M3 8c0 2.200 10 2.200 10 0',
  menu: 'M2.5 4.500h11M2.500 8h11M2.500 11.500h11',
  moon: 'M13 9.500A5.500 5.500 0 1 1 6.500 3a4.500 4.500 0 0 0 6.500 6.500z',
  more: 'M3 8h.01M8 8h.01M13 8h.01',
  plus: 'M8 3v10M3 8h10',
  retry: 'M13 8a5 5 0 1 1-1.600-3.700M13 2v3h-3',
  right: 'M6 4l4 4-4 4',
  search: 'M7 2.500a4.500 4.500 0 1 0 0 9a4.500 4.500 0 1 0 0-9M10.300 10.300L14 14',
  send: 'M8 13V3M3.500 7.500L8 3l4.500 4.500',
  stop: 'M4.500 4.500h7v7h-7z',
  sun: 'M8 5.200a2.800 2.800 0 1 0 0 5.600a2.800 2.800 0 1 0 0-5.600M8 1.500v1.300M8 13.200v1.300M1.500 8h1.300M13.200 8h1.300M3.400 3.400l.9.9M11.700 11.700l.9.9M12.600 3.400l-.9.9M4.300 11.700l-.9.9',
  thumb: 'M5 7.500v6H2.500v-6zM5 7.500L8 2c1.500 0 2 1 1.700 2.200L9.200 6.500h3.300c1 0 1.500.8 1.300 1.700l-1 4c-.2.800-.8 1.300-1.600 1.300H5',
  tool: 'M9.500 6.500a3.200 3.200 0 0 1 4-3.800l-2 2 .3 1.500 1.500.3 1-1a3.200 3.200 0 0 1-4.300 3L5.200 13.300a1.300 1.300 0 0 1-2.500-2.500z',
  undo: 'M3 6h7a3.500 3.500 0 0 1 0 7H6M5.500 3L2.500 6l3 3',
  usage: 'M2.500 13.500h11M4.500 11V8M8 11V3M11.500 11V6',
};

export function Icon({ name, turned = false }) {
  return html`<svg class=${turned ? 'icon turned' : 'icon'} viewBox="0 0 16 16" aria-hidden="true"><path d=${LINES[name]} /></svg>`;
}

/** The mark: three strands, braided. */
export function Mark() {
  return html`<svg class="mark" viewBox="0 0 24 24" aria-hidden="true">
    <path class="strand-a" d="M6 2c0 5 12 5 12 10S6 17 6 22" />
    <path class="strand-b" d="M18 2c0 5-12 5-12 10s12 5 12 10" />
    <path class="strand-c" d="M12 2v20" />
  </svg>`;
}
