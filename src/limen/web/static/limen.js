// The page works without this; with it, it follows what happens and can be used from the keyboard.
"use strict";
const form = document.getElementById("say");
const boxes = () => [...document.querySelectorAll('#say input[name="item"]')];
const busy = () =>
  boxes().some((box) => box.checked) ||
  document.activeElement?.matches("#name, #known, #groups *, #items *") ||
  document.querySelector("#groups details[open]");

function counted() {
  const count = boxes().filter((box) => box.checked).length;
  const told = document.getElementById("ticked");
  if (told) told.textContent = count ? `${count} ticked` : "None ticked";
  form?.classList.toggle("idle", !count);
  for (const button of form?.querySelectorAll(".bar button") ?? []) button.disabled = !count;
}

// Take over what has changed on the server, but nothing a person is working on.
let asked = false;
let last = 0;
async function refresh() {
  if (asked) return;
  asked = true;
  await new Promise((done) => setTimeout(done, Math.max(300, last + 1500 - Date.now())));
  asked = false;
  last = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html", "x-refresh": "1" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const old of document.querySelectorAll("[data-live]")) {
      const now = fresh.getElementById(old.id);
      if (!now || (old.hasAttribute("data-quiet") && busy())) continue;
      if (old.innerHTML !== now.innerHTML) old.replaceWith(document.adoptNode(now));
    }
    counted();
  } catch {
    // The server is away; EventSource tries again and asks anew.
  }
}

// Browsers allow few connections to one server: only a page that is seen keeps one open.
let events = null;
function follow() {
  events?.close();
  events = null;
  if (document.visibilityState === "hidden") return;
  events = new EventSource("/v1/events");
  for (const kind of ["items", "labels", "job", "model", "alarm"]) events.addEventListener(kind, refresh);
  events.onopen = refresh;
  events.onerror = () => events?.readyState === EventSource.CLOSED && setTimeout(follow, 5000);
}
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", () => events?.close());
addEventListener("pageshow", follow);

document.addEventListener("change", (event) => event.target.matches?.('[name="item"]') && counted());
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.hasAttribute("data-ticks")) tick(button.closest(".group"));
  if (button?.dataset.opens) document.getElementById(button.dataset.opens).showModal();
});

function tick(group) {
  const mine = [...(group?.querySelectorAll('input[name="item"]') ?? [])];
  const all = mine.every((box) => box.checked);
  for (const box of mine) box.checked = !all;
  counted();
}

function move(step) {
  const groups = [...document.querySelectorAll(".group")];
  const here = groups.findIndex((group) => group.contains(document.activeElement));
  const next = groups[Math.min(Math.max(here + step, 0), groups.length - 1)];
  next?.querySelector("[data-ticks]").focus();
  next?.scrollIntoView({ block: "nearest" });
}

const keysOn = document.getElementById("keys-on");
if (keysOn) {
  keysOn.checked = localStorage.getItem("keys") !== "off";
  keysOn.addEventListener("change", () => localStorage.setItem("keys", keysOn.checked ? "on" : "off"));
}

form?.addEventListener("submit", (event) => {
  const name = document.getElementById("name");
  if (event.submitter?.value !== "teach" || name.value.trim()) return;
  event.preventDefault();
  name.setCustomValidity("Give the new class a name.");
  name.reportValidity();
  name.addEventListener("input", () => name.setCustomValidity(""), { once: true });
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]") || keysOn?.checked === false) return;
  if (event.key === "Escape") {
    for (const box of boxes()) box.checked = false;
    document.activeElement?.blur();
    counted();
    return;
  }
  if (event.target.matches("input:not([type=checkbox]), select, textarea")) return;
  const keys = {
    j: () => move(1),
    k: () => move(-1),
    x: () => tick(document.activeElement?.closest(".group") ?? document.querySelector(".group")),
    n: () => document.getElementById("name")?.focus(),
    c: () => document.getElementById("known")?.focus(),
    d: () => document.querySelector('[data-key="d"]:enabled')?.click(),
    u: () => document.querySelector('[data-key="u"]')?.click(),
    "?": () => document.getElementById("keys")?.showModal(),
  };
  if (keys[event.key]) {
    event.preventDefault();
    keys[event.key]();
  }
});

const drop = document.getElementById("drop");
async function judge(files) {
  const list = document.getElementById("verdicts");
  list.replaceChildren();
  for (const file of files) {
    const line = document.createElement("li");
    line.textContent = `${file.name}: …`;
    list.append(line);
    const body = new FormData();
    body.append("files", file);
    try {
      const answer = await fetch("/v1/predict", { method: "POST", body });
      const told = await answer.json();
      if (!answer.ok) throw new Error(told.detail);
      const [item] = told.items;
      const picture = document.createElement("img");
      Object.assign(picture, { src: item.media, alt: "", width: 48, height: 48 });
      const text = document.createElement("span");
      const strange = item.strangeness === null ? "without end" : item.strangeness.toFixed(2);
      const name = document.createElement("b");
      name.textContent = item.novel ? "unknown" : item.label;
      text.append(name, item.novel ? `, most like ${item.nearest}` : "", `, strangeness ${strange}`);
      line.replaceChildren(picture, text);
    } catch (error) {
      line.className = "refused";
      line.textContent = `${file.name}: ${error.message}`;
    }
  }
}
if (drop) {
  for (const kind of ["dragenter", "dragover"])
    drop.addEventListener(kind, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const kind of ["dragleave", "drop"]) drop.addEventListener(kind, () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => { event.preventDefault(); judge(event.dataTransfer.files); });
  drop.addEventListener("submit", (event) => { event.preventDefault(); judge(drop.elements.files.files); });
}
counted();
