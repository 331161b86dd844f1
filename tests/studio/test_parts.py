"""The studio's modules that draw nothing, run where they run: in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http_server import Running, serving
from tests.studio.conftest import OpenStudio
from tests.studio.hostile import HOSTILE

TAGS = {
    *("A", "BLOCKQUOTE", "BR", "BUTTON", "CODE", "DEL", "DIV", "EM", "H1", "H2", "H3", "HR"),
    *("INPUT", "LI", "OL", "P", "PRE", "SPAN", "STRONG", "TABLE", "TBODY", "TD", "TH", "THEAD"),
    *("TR", "UL"),
}
ATTRIBUTES = {
    *("align", "aria-label", "checked", "class", "disabled", "href", "rel", "start", "target"),
    *("title", "type"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving() as running:
        yield running


def test_events_are_the_same_however_the_stream_is_cut(
    server: Running, open_studio: OpenStudio
) -> None:
    studio = open_studio(server)
    differing = studio.page.evaluate(
        r"""async () => {
          const { EventParser } = await import('/studio/events.js');
          const text = ': hello\n\nid: 1\nevent: text\ndata: {"text": "ä\\n"}\n\n'
            + 'id: 2\r\nevent: said\r\ndata: {"a":\r\ndata: [1, 2]}\r\n\r\n'
            + ': beat\n\nid:3\nevent:end\ndata:{}\n\n';
          const read = (pieces) => {
            const parser = new EventParser();
            return JSON.stringify(pieces.flatMap((piece) => [...parser.feed(piece)]));
          };
          const whole = read([text]);
          const found = [];
          for (let cut = 0; cut <= text.length; cut += 1) {
            const told = read([text.slice(0, cut), text.slice(cut)]);
            if (told !== whole) found.push([cut, told]);
          }
          if (read([...text]) !== whole) found.push('letters');
          const told = JSON.parse(whole).map(({ seq, kind }) => `${seq}${kind}`).join();
          if (told !== '1text,2said,3end') found.push(whole);
          return found;
        }"""
    )
    assert differing == []


def test_heights_agree_with_adding_them_up(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server)
    wrong = studio.page.evaluate(
        """async () => {
          const { Heights } = await import('/studio/heights.js');
          let seed = 7;
          const random = (below) => (seed = (seed * 48271) % 2147483647) % below;
          const heights = new Heights(0, 100);
          let plain = [];
          for (let step = 0; step < 3000; step += 1) {
            const deed = random(10);
            if (deed === 0) {
              const count = random(200);
              plain = plain.slice(0, count);
              while (plain.length < count) plain.push(100);
              heights.resize(count);
            } else if (plain.length) {
              const index = random(plain.length);
              plain[index] = random(300);
              heights.set(index, plain[index]);
            }
            const place = random(plain.length + 1);
            const before = plain.slice(0, place).reduce((sum, one) => sum + one, 0);
            if (heights.before(place) !== before) return ['before', step, place];
            const total = plain.reduce((sum, one) => sum + one, 0);
            if (heights.total !== total) return ['total', step];
            if (!total) continue;
            const height = random(total);
            let expected = 0;
            for (let sum = plain[0]; sum <= height; sum += plain[expected]) expected += 1;
            if (heights.at(height) !== expected) return ['at', step, height];
          }
          return null;
        }"""
    )
    assert wrong is None


def test_hostile_markdown_becomes_harmless_html(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server)
    told = studio.page.evaluate(
        """async (texts) => {
          const { rendered } = await import('/studio/markdown.js');
          const read = (text) => new DOMParser().parseFromString(rendered(text), 'text/html');
          const nodes = texts.flatMap((text) => [...read(text).body.querySelectorAll('*')]);
          const links = nodes.filter((node) => node.href !== undefined);
          return {
            tags: [...new Set(nodes.map((node) => node.tagName))],
            names: [...new Set(nodes.flatMap((node) => node.getAttributeNames()))],
            links: links.map((node) => [node.protocol, node.rel]),
          };
        }""",
        HOSTILE,
    )
    assert len(HOSTILE) >= 60
    assert set(told["tags"]) <= TAGS
    assert set(told["names"]) <= ATTRIBUTES
    for protocol, rel in told["links"]:
        assert protocol in (":", "https:", "http:", "mailto:")
        assert "noopener" in rel


def test_the_policy_lets_no_text_become_html(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server)
    refused = studio.page.evaluate(
        """() => {
          try { document.createElement('div').innerHTML = '<b>x</b>'; return false; }
          catch (error) { return error instanceof TypeError; }
        }"""
    )
    assert refused
    # That was the test's own doing, so it is not held against the page.
    studio.page.evaluate("window.__violations = []")
    studio.complaints.clear()
