// The page: side bar, the view of the current route, and the login.
import { get, login, onBack, onLogin } from './api.js';
import { Dialogs } from './dialog.js';
import { HomePage } from './home.js';
import { Icon, Mark } from './icons.js';
import { listen, showShortcuts, useKeys } from './keys.js';
import { MemoryPage } from './memory.js';
import { go, pageLink, useRoute } from './route.js';
import { SessionView } from './session.js';
import { Sessions } from './sessions.js';
import { ThemeToggle } from './theme.js';
import { Toasts, attempt } from './toasts.js';
import { UsagePage } from './usage.js';
import { classes, html, render, useEffect, useLayoutEffect, useState } from './view.js';

function App() {
  const route = useRoute();
  const [locked, setLocked] = useState(false);
  const [entered, setEntered] = useState(0);
  const [open, setOpen] = useState(false);
  const [version, setVersion] = useState(0);
  const models = useModels(entered);
  useLayoutEffect(() => onLogin(() => setLocked(true)), []);
  useEffect(() => setOpen(false), [route]);
  useEffect(() => {
    const changed = () => { if (!document.hidden) setVersion((count) => count + 1); };
    addEventListener('sessionschange', changed);
    document.addEventListener('visibilitychange', changed);
    return () => { removeEventListener('sessionschange', changed); document.removeEventListener('visibilitychange', changed); };
  }, []);
  useKeys({ m: () => go(pageLink('memory')), u: () => go(pageLink('usage')), '?': showShortcuts });
  if (locked) return html`<${Login} done=${() => { setLocked(false); setEntered(entered + 1); }} />`;
  return html`<div class=${classes('app', open && 'side-open')} key=${entered}>
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById('main').focus(); }}>Skip to content</a>
    <${Side} route=${route} version=${version} />
    <div class="veil" onClick=${() => setOpen(false)}></div>
    <main id="main" tabindex="-1">
      <button class="icon-button open-side" aria-label="Sessions" aria-expanded=${open} onClick=${() => setOpen(!open)}><${Icon} name="menu" /></button>
      <${Page} route=${route} models=${models} />
    </main>
  </div>`;
}

// The models of the server; empty until loaded, so that nothing else has to wait.
function useModels(entered) {
  const [models, setModels] = useState([]);
  useEffect(() => {
    const read = () => attempt(async () => setModels((await get('/api/models')).models));
    read();
    return onBack(read);  // another server may have other models
  }, [entered]);
  return models;
}

function Side({ route, version }) {
  return html`<aside class="side" aria-label="Sessions and pages">
    <a class="brand" href="#/"><${Mark} />Sennit</a>
    <${Sessions} current=${route.session} version=${version} />
    <footer class="side-foot">
      <a class=${classes('nav', route.page === 'memory' && 'here')} href=${pageLink('memory')}><${Icon} name="memory" />Memory</a>
      <a class=${classes('nav', route.page === 'usage' && 'here')} href=${pageLink('usage')}><${Icon} name="usage" />Usage</a>
      <span class="spring"></span>
      <button class="icon-button" aria-label="Shortcuts" title="Shortcuts (?)" onClick=${showShortcuts}><${Icon} name="help" /></button>
      <${ThemeToggle} />
    </footer>
  </aside>`;
}

function Page({ route, models }) {
  if (route.page === 'session') return html`<${SessionView} key=${route.session} route=${route} models=${models} />`;
  if (route.page === 'memory') return html`<${MemoryPage} params=${route.params} />`;
  if (route.page === 'usage') return html`<${UsagePage} />`;
  return html`<${HomePage} models=${models} />`;
}

const INVALID = new Error('This token is not valid.');

function Login({ done }) {
  const [error, setError] = useState(null);
  const enter = async (event) => {
    event.preventDefault();
    const given = event.target.elements.token.value.trim();
    if (!/^[!-~]+$/.test(given)) { setError(INVALID); return; }  // nothing else can be sent
    login(given);
    try {
      await get('/api/me');
      done();
    } catch (refused) {
      login(null);
      setError(refused.status === 401 ? INVALID : refused);
    }
  };
  return html`<main class="login"><form onSubmit=${enter}>
    <${Mark} /><h1>Sennit</h1>
    <label class="field">Token<input name="token" type="password" autocomplete="current-password" required autofocus placeholder="snt_…" /></label>
    ${error && html`<p class="notice error" role="alert">${error.message}</p>`}
    <button class="button primary wide">Log in</button>
    <p class="hint">Create one with <code>sennit token create</code>. It is stored until you close this tab.</p>
  </form></main>`;
}

listen();
render(html`<${App} /><${Dialogs} /><${Toasts} />`, document.getElementById('app'));
