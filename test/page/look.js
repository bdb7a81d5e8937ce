(() => {
  // Colours as red, green, blue and opacity.
  const parts = (colour) => { const n = colour.match(/[\d.]+/g).map(Number); return n.length < 4 ? [...n, 1] : n; };
  const light = (colour) => {
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = parts(colour).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = getComputedStyle(e).backgroundColor, opacity = parts(colour)[3];
      if (opacity === 1) return colour;
      if (opacity !== 0) throw new Error("what is behind " + e.outerHTML + " is not one colour");
    }
    throw new Error("nothing is behind " + element.outerHTML);
  };
  const faint = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let n = 0;
  while (texts.nextNode()) {
    const text = texts.currentNode.data.trim(), element = texts.currentNode.parentElement;
    if (!text || !element.checkVisibility() || element.closest(".heard, script, noscript")) continue;
    const a = light(getComputedStyle(element).color), b = light(behind(element));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    n++;
    if (contrast < 4.5) faint.push(`${contrast.toFixed(2)}: ${text}`);
  }
  const heading = document.querySelector("h1, h2, h3, h4, h5, h6"), read = heading.cloneNode(true);
  read.querySelectorAll("[aria-hidden]").forEach((e) => e.remove());
  const all = [...document.querySelectorAll("*")];
  const stuck = all.filter((e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === "auto" &&
    !(e.tabIndex === 0 && e.role === "region" && e.ariaLabel));
  return {
    First: read.textContent.trim(), Tag: heading.tagName,
    Wide: document.documentElement.scrollWidth,
    Faint: faint, Texts: n,
    Rows: [...new Set([...document.querySelectorAll("tr")].map((e) => getComputedStyle(e).display))],
    Tables: document.querySelectorAll("table").length,
    Stuck: stuck.map((e) => e.outerHTML.slice(0, 80)),
    Scheme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light",
    Complaints: complaints,
  };
})()
