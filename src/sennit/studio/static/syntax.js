// Syntax highlighting of comments, strings, numbers and keywords, with one pattern per language family. It
// never fails or changes the text; an unknown language stays plain.

const WORDS = {
  c: 'abstract async await bool boolean break case catch char class const continue default defer delete do double else enum export extends extern false final float fn for from func function go goto if impl implements import in int interface let long loop match mod mut namespace new nil null of override package private protected pub public return self short static string struct super switch template this throw true try type typeof undefined union unsafe use using var void volatile where while yield',
  py: 'and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield',
  sh: 'case cd do done echo elif else esac exit export fi for function if in local return set then while',
  sql: 'add all alter and as asc begin between by case commit create cross delete desc distinct drop else end exists from full group having in index inner insert into is join key left like limit not null on or order outer primary references right rollback select set table then union unique update values view when where with',
};

const C_LIKE = ['c', 'cpp', 'cs', 'css', 'csharp', 'dart', 'go', 'java', 'javascript', 'js', 'json', 'jsx', 'kotlin', 'kt', 'php', 'rs', 'rust', 'scala', 'swift', 'ts', 'tsx', 'typescript', 'zig'];
const FAMILY = {
  ...Object.fromEntries(C_LIKE.map((name) => [name, 'c'])),
  py: 'py', python: 'py', rb: 'py', ruby: 'py', yaml: 'py', yml: 'py', toml: 'py',
  sh: 'sh', bash: 'sh', zsh: 'sh', shell: 'sh', console: 'sh', sql: 'sql',
};
const COMMENT = { c: '\\/\\/[^\\n]*|\\/\\*[^]*?\\*\\/', py: '#[^\\n]*', sh: '(?<=^|\\s)#[^\\n]*', sql: '--[^\\n]*' };
const STRING = '"""[^]*?"""|"(?:\\\\.|[^"\\\\\\n])*"|\'(?:\\\\.|[^\'\\\\\\n])*\'|`(?:\\\\.|[^`\\\\])*`';

const PATTERNS = Object.fromEntries(Object.entries(WORDS).map(([family, words]) => [family, new RegExp(
  `(?<comment>${COMMENT[family]})|(?<string>${STRING})|(?<number>\\b\\d[\\d_]*(?:\\.\\d+)?\\b)|(?<word>\\b(?:${words.replaceAll(' ', '|')})\\b)`,
  family === 'sql' ? 'gim' : 'gm',
)]));

const SIGNS = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };

export const escaped = (text) => text.replace(/[&<>"']/g, (sign) => SIGNS[sign]);

/** Return code as HTML with highlighted tokens. */
export function highlighted(code, language = '') {
  const pattern = PATTERNS[FAMILY[language.toLowerCase()]];
  if (!pattern || code.length > 50_000) return escaped(code);
  let result = '';
  let last = 0;
  for (const match of code.matchAll(pattern)) {
    const [kind] = Object.entries(match.groups).find(([, text]) => text !== undefined);
    result += `${escaped(code.slice(last, match.index))}<span class="t-${kind}">${escaped(match[0])}</span>`;
    last = match.index + match[0].length;
  }
  return result + escaped(code.slice(last));
}
