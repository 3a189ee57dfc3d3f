"""The script of a page with a filter: filter by text and facet, keys, expanding, links into what is closed, printing.

It reads the page and sets `hidden` and `open`, and never writes text that came from it as markup. Keys: `/` goes to the
search, Enter from there to the first match, Escape clears it.
"""

SCRIPT = """
"use strict";
(() => {
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const bar = document.querySelector(".filters");
  const search = bar.querySelector("input");
  const selects = all("select", bar);
  const buttons = all("button", bar);
  const status = bar.querySelector("output");
  const items = all("[data-item]");
  const texts = items.map((item) => all(".find", item).map((part) => part.textContent).join(" ").toLowerCase());
  const groups = all(".items");

  const matches = (item, text, words) =>
    words.every((word) => text.includes(word)) &&
    selects.every((select) => !select.value || item.dataset[select.dataset.facet].split(" ").includes(select.value));

  const filter = () => {
    const words = search.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    items.forEach((item, index) => { if (!(item.hidden = !matches(item, texts[index], words))) shown += 1; });
    groups.forEach((group) => {
      const empty = !group.querySelector("[data-item]:not([hidden])");
      group.classList.toggle("empty", empty);
      group.querySelector(".none").hidden = !empty;
    });
    const filtered = words.length || selects.some((select) => select.value);
    status.textContent = filtered ? `${shown} of ${items.length} shown` : "";
  };

  const clear = () => { search.value = ""; selects.forEach((select) => { select.value = ""; }); filter(); };

  const firstMatch = () => {
    const item = items.find((each) => !each.hidden);
    if (!item) return;
    const target = item.querySelector("summary, a");
    if (item.matches("details")) item.open = true;
    if (target) target.focus();
    item.scrollIntoView({ block: "nearest" });
  };

  const follow = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    const item = target.closest("[data-item]");
    if (item && item.hidden) clear();
    const card = target.closest("details");
    if (!card) return;
    card.open = true;
    card.querySelector("summary").focus({ preventScroll: true });
    card.scrollIntoView();
  };

  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details:not([open])");
    closed.forEach((each) => { each.open = true; });
  });
  addEventListener("afterprint", () => { closed.forEach((each) => { each.open = false; }); });

  addEventListener("hashchange", follow);
  bar.addEventListener("input", filter);
  bar.addEventListener("submit", (event) => { event.preventDefault(); firstMatch(); });
  // A link that is followed again changes no address, and its card may have been closed meanwhile.
  addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.hash === location.hash) setTimeout(follow);
  });
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && !event.target.matches("input, select, textarea")) {
      event.preventDefault();
      search.focus();
      search.select();
    } else if (event.key === "Escape" && event.target === search) {
      clear();
    }
  });
  buttons.forEach((button) => button.addEventListener("click", () => {
    items.filter((item) => !item.hidden).forEach((item) => {
      const target = item.matches("details") ? item : item.querySelector("details");
      if (target) target.open = Boolean(button.dataset.open);
    });
  }));

  bar.hidden = false;
  filter();
  follow();
})();
"""
