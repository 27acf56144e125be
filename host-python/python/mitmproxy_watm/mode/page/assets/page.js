// Refreshes the page in place, so that focus, a selection, open details or a QR code in front of a
// camera stay, and sends swaps.
"use strict";

// Milliseconds.
const PERIOD = 1000;
const PATIENCE = 5000;
// Bytes, as the server's limit.
const LARGEST = 64 * 1024 * 1024;

const servers = document.getElementById("servers");
const stale = document.getElementById("stale");

const key = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.dataset.key : undefined);

// Makes the element `shown` like `next`, and keeps its nodes. Children match by their key or place.
// Users own what is open, and scripts what is within `data-own`.
function patch(shown, next) {
  if (shown.nodeType === Node.TEXT_NODE) {
    if (shown.data !== next.data) {
      shown.data = next.data;
    }
    return;
  }
  if ("own" in shown.dataset || shown.isEqualNode(next)) {
    return;
  }
  for (const { name } of [...shown.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") {
      shown.removeAttribute(name);
    }
  }
  for (const { name, value } of next.attributes) {
    if (shown.getAttribute(name) !== value) {
      shown.setAttribute(name, value);
    }
  }
  let place = shown.firstChild;
  for (const child of [...next.childNodes]) {
    let match = place;
    while (match !== null && key(match) !== key(child)) {
      match = match.nextSibling;
    }
    if (match === null || match.nodeName !== child.nodeName) {
      shown.insertBefore(child, place);
      continue;
    }
    while (place !== match) {
      const gone = place;
      place = place.nextSibling;
      gone.remove();
    }
    place = match.nextSibling;
    patch(match, child);
  }
  while (place !== null) {
    const gone = place;
    place = place.nextSibling;
    gone.remove();
  }
}

function outdated(text) {
  if (stale.hidden !== (text === "") || stale.textContent !== text) {
    stale.hidden = text === "";
    stale.textContent = text;
  }
}

async function refresh() {
  try {
    const response = await fetch("/watm/servers", { credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE) });
    if (!response.ok) {
      outdated(response.status === 403 ? "mitmweb asks for its token again. Reload the page." : `mitmweb answers with an error: ${response.status} ${response.statusText}.`);
      return;
    }
    const next = new DOMParser().parseFromString(`<main id="servers">${await response.text()}</main>`, "text/html");
    patch(servers, next.getElementById("servers"));
    outdated("");
  } catch {
    outdated("mitmweb does not answer. This page shows its last state. Start mitmweb again, and open the new link from its log.");
  }
}

async function keepRefreshing() {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, PERIOD));
    if (!document.hidden) {
      await refresh();
    }
  }
}

function say(output, text, kind) {
  output.textContent = text;
  output.className = `said ${kind}`;
}

// Sends a swap. Returns its result. The reason of a failed swap is part of the page; `error` has that
// of one that was not tried.
async function send(path, body, type) {
  const headers = { "Content-Type": type, "X-XSRFToken": document.body.dataset.token };
  const response = await fetch(path, { method: "POST", credentials: "same-origin", headers, body });
  const text = await response.text();
  if (response.ok) {
    return { ...JSON.parse(text), error: "" };
  }
  if (response.status === 403) {
    return { swapped: false, error: "mitmweb refused it. Reload the page, and try again." };
  }
  return { swapped: false, error: text };
}

async function swap(form, output, name, sending) {
  const buttons = form.querySelectorAll("button");
  buttons.forEach((button) => { button.disabled = true; });
  say(output, `Checking ${name}…`, "");
  try {
    const result = await sending();
    if (result.swapped) {
      say(output, `${result.module.split("/").pop()} is in service now. Open flows go on.`, "good");
    } else {
      say(output, result.error, "bad");
    }
  } catch {
    say(output, "mitmweb does not answer, so nothing was swapped. Start it again, and reload the page.", "bad");
  }
  buttons.forEach((button) => { button.disabled = false; });
  await refresh();
}

async function capture(form, action) {
  const output = form.querySelector(".said");
  try {
    const result = await send("/watm/capture", ...json({ spec: form.dataset.capture, action }));
    say(output, result.error, "bad");
  } catch {
    say(output, "mitmweb does not answer. Start it again, and reload the page.", "bad");
  }
  await refresh();
}

async function network(form, words) {
  const output = form.querySelector(".said");
  try {
    const result = await send("/watm/network", ...json({ spec: form.dataset.network, words }));
    say(output, result.error, "bad");
  } catch {
    say(output, "mitmweb does not answer. Start it again, and reload the page.", "bad");
  }
  await refresh();
}

const json = (content) => [JSON.stringify(content), "application/json"];

servers.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.target;
  if (form.dataset.rollback !== undefined) {
    const output = form.parentElement.querySelector(".swap .said");
    swap(form, output, "the previous module", () => send("/watm/rollback", ...json({ spec: form.dataset.rollback })));
    return;
  }
  if (form.dataset.capture !== undefined) {
    capture(form, event.submitter.value);
    return;
  }
  if (form.dataset.network !== undefined) {
    const { submitter } = event;
    // Enter in the field submits with the first button, or with none.
    const written = document.activeElement === form.elements.own || submitter === null || submitter.classList.contains("own");
    network(form, written ? form.elements.own.value : submitter.value);
    return;
  }
  const spec = form.dataset.swap;
  const output = form.querySelector(".said");
  const [file] = form.elements.file.files;
  const module = form.elements.module.value.trim();
  if (event.submitter?.classList.contains("main")) {
    if (file === undefined) {
      say(output, "Choose a .wasm file first.", "bad");
      form.elements.file.focus();
    } else if (file.size > LARGEST) {
      say(output, `${file.name} has more than 64 MiB, the limit for modules. Choose a .wasm file.`, "bad");
    } else {
      const query = new URLSearchParams({ spec, name: file.name });
      swap(form, output, file.name, () => send(`/watm/upload?${query}`, file, "application/wasm"));
    }
  } else if (module === "") {
    say(output, "Write a name or a path first.", "bad");
    form.elements.module.focus();
  } else {
    swap(form, output, module, () => send("/watm/swap", ...json({ spec, module })));
  }
});

// The clipboard is for secure pages alone, and may be forbidden; then a selection is copied.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return;
  } catch {
    // Below.
  }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  if (!copied) {
    throw new Error("not allowed");
  }
}

servers.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (button === null) {
    return;
  }
  const article = button.closest("article");
  const output = article.querySelector(".said");
  try {
    await copy(`${article.querySelector("pre").textContent}\n`);
    say(output, "Copied. Paste it into the client, and clear the clipboard.", "good");
  } catch {
    article.querySelector("details").open = true;
    say(output, "The browser does not allow copying. Select the text, or download the file.", "bad");
  }
});

keepRefreshing();
