// Fetches the page again and changes in place what differs. So the reader's selection, focus and place survive.
(() => {
  "use strict";
  const main = document.querySelector("main");
  const said = document.getElementById("said");
  const trouble = document.getElementById("trouble");
  const styles = (page) => page.querySelector("style").textContent;
  let timer, busy = false, good = new Date();

  // become makes one node what the other one is.
  function become(node, next) {
    if (node.nodeName !== next.nodeName) return node.replaceWith(next);
    if (node.nodeType !== Node.ELEMENT_NODE) {
      if (node.data !== next.data) node.data = next.data;
      return;
    }
    for (const { name, value } of [...next.attributes]) {
      if (node.getAttribute(name) !== value) node.setAttribute(name, value);
    }
    for (const { name } of [...node.attributes]) {
      if (!next.hasAttribute(name) && name !== "open") node.removeAttribute(name); // The reader opens details.
    }
    const old = [...node.childNodes], fresh = [...next.childNodes];
    fresh.forEach((child, i) => (old[i] ? become(old[i], child) : node.append(child)));
    old.slice(fresh.length).forEach((child) => child.remove());
  }

  // keepingSelection does it again where a changed text has lost it.
  function keepingSelection(change) {
    const s = getSelection(), { anchorNode: a, anchorOffset: i, focusNode: f, focusOffset: j } = s;
    const length = (node) => (node.data ?? node.childNodes).length;
    change();
    const lost = s.anchorNode !== a || s.anchorOffset !== i || s.focusNode !== f || s.focusOffset !== j;
    if (lost && a?.isConnected && f?.isConnected) {
      s.setBaseAndExtent(a, Math.min(i, length(a)), f, Math.min(j, length(f)));
    }
  }

  async function fetched() {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (!answer.ok) throw new Error("HTTP " + answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!page.querySelector("main[data-say]")) throw new Error("the answer is another page");
    return page;
  }

  async function update() {
    clearTimeout(timer);
    if (document.hidden || busy) return; // Nobody looks. Being shown again is an event, see below.
    busy = true;
    try {
      const page = await fetched(), next = page.querySelector("main");
      if (styles(page) !== styles(document)) return location.reload(); // Another version serves it by now.
      const news = next.dataset.say !== main.dataset.say;
      keepingSelection(() => become(main, next));
      document.title = page.title;
      if (news) said.textContent = main.dataset.say;
      trouble.hidden = true;
      good = new Date();
    } catch (error) {
      main.classList.add("cut");
      document.title = "NOT UPDATED · " + document.title.replace("NOT UPDATED · ", "");
      if (trouble.hidden) {
        trouble.hidden = false;
        trouble.textContent = `This page could not be updated since ${good.toISOString().slice(11, 19)} UTC ` +
          `(${error.message}). What it shows may be wrong by now.`;
      }
    }
    busy = false;
    timer = setTimeout(update, main.dataset.every * 1000);
  }

  document.addEventListener("visibilitychange", update);
  timer = setTimeout(update, main.dataset.every * 1000);
})();
