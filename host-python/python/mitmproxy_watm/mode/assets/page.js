// Refreshes what changes and leaves the rest alone, so that a selection, an open counter list
// or a QR code in front of a camera stays.
"use strict";

// Milliseconds.
const PERIOD = 2000;
const PATIENCE = 5000;
const servers = document.getElementById("servers");
const stale = document.getElementById("stale");

function specs(root) {
  return [...root.querySelectorAll("section")].map((section) => section.dataset.spec + (section.querySelector("article") !== null)).join("\n");
}

function replaceAll(next) {
  const open = [...servers.querySelectorAll("details[open]")].map((details) => details.dataset.keep);
  servers.replaceChildren(...next.childNodes);
  for (const details of servers.querySelectorAll("details")) {
    details.open = open.includes(details.dataset.keep);
  }
}

function update(html) {
  const next = new DOMParser().parseFromString(html, "text/html").body;
  if (specs(next) !== specs(servers) || servers.querySelector("section") === null) {
    replaceAll(next);
    return;
  }
  for (const part of next.querySelectorAll("[data-live]")) {
    const shown = servers.querySelector(`[data-live="${part.dataset.live}"]`);
    if (shown !== null && shown.innerHTML !== part.innerHTML) {
      shown.replaceChildren(...part.childNodes);
    }
  }
}

async function refresh() {
  try {
    const response = await fetch("/watm/servers", { credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE) });
    if (!response.ok) {
      throw new Error(response.statusText);
    }
    update(await response.text());
    stale.hidden = true;
  } catch {
    stale.hidden = false;
  }
  setTimeout(refresh, PERIOD);
}

setTimeout(refresh, PERIOD);
