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

// What comes of it is shown with the next refresh.
servers.addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    const response = await fetch("/watm/swap", {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json", "X-XSRFToken": document.body.dataset.token },
      body: JSON.stringify({ spec: form.dataset.swap, module: form.elements.module.value }),
    });
    stale.hidden = response.ok;
  } catch {
    stale.hidden = false;
  }
  button.disabled = false;
});

setTimeout(refresh, PERIOD);
