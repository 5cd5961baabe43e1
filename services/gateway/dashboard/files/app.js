// The frame of the pages: the address after # selects one.
import { html, render } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { connect, connection, disconnect, loggedOut, nextTry, request, useNow } from "./api.js";
import { clock } from "./format.js";
import { route } from "./address.js";
import { Help, Theme, theme } from "./help.js";
import { Submit } from "./submit.js";
import { Overview } from "./overview.js";
import { Jobs } from "./jobs.js";
import { Job } from "./job.js";
import { Nodes } from "./nodes.js";
import { System } from "./system.js";

const pages = [["overview", "Overview"], ["jobs", "Jobs"], ["nodes", "Nodes"], ["system", "System"]];

function Login() {
  const [error, set] = useState("");
  const send = async (e) => {
    e.preventDefault();
    try {
      await request("POST", "/api/v1/session", { token: new FormData(e.target).get("token") });
      loggedOut.value = false;
      connect();
    } catch (err) { set(err.message); }
  };
  return html`<main class="alone"><h1>Regroup</h1>
    <p>This browser has no session. Open a link of <code>regroup dashboard</code>, or give the token of the gateway.</p>
    ${error && html`<p class="message bad" role="alert">${error}</p>`}
    <form class="tools" onSubmit=${send}><label>Token <input name="token" type="password" autocomplete="current-password" required /></label><button>Log in</button></form></main>`;
}

function App() {
  const [at, set] = useState(route());
  const [help, showHelp] = useState(false);
  useEffect(() => {
    let page = location.hash.split("?")[0], begun = 0;
    const changed = () => {
      set(route());
      const next = location.hash.split("?")[0];
      if (next !== page) window.scrollTo(0, 0); // not for another filter of the same page
      page = next;
    };
    const key = (e) => {
      if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select, dialog")) return;
      const to = { o: "overview", j: "jobs", n: "nodes", s: "system" }[e.key];
      if (to && Date.now() - begun < 1500) { location.hash = `#/${to}`; begun = 0; return; }
      if (e.key === "g") { begun = Date.now(); return; }
      if (e.key === "?") { showHelp(true); return; }
      if (e.key !== "/") return;
      const search = document.querySelector("input[type=search]");
      if (search) { e.preventDefault(); search.focus(); } else { location.hash = "#/jobs"; }
    };
    addEventListener("hashchange", changed);
    addEventListener("keydown", key);
    return () => { removeEventListener("hashchange", changed); removeEventListener("keydown", key); };
  }, []);
  const page = at.words[0] || "overview";
  useEffect(() => {
    const name = at.words[1] || (page === "submit" && "Submit a job") || (pages.find(([p]) => p === page) || ["", "Not found"])[1];
    document.title = `${name} · Regroup`;
  }, [page, at.words[1]]);
  if (loggedOut.value) return html`<${Login} />`;
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>Skip to the page</a>
    <header class="top">
      <a class="brand" href="#/overview"><img src="/icon.svg" alt="" />Regroup</a>
      <nav aria-label="Pages">${pages.map(([name, text]) => html`<a href="#/${name}" aria-current=${page === name ? "page" : null}>${text}</a>`)}</nav>
      <span class="connection" role="status"><span class="dot ${connection.value.state === "live" ? "on" : ""}"></span>${says[connection.value.state]}</span>
      <span class="tools"><${Theme} /><button class="small" aria-label="Help: keys" onClick=${() => showHelp(true)}>?</button></span>
    </header><${Help} open=${help} close=${() => showHelp(false)} />
    <${Silence} />
    <main id="main" tabindex="-1" class=${quiet() ? "quiet" : null}>${view(page, at)}</main>`;
}

const says = { live: "live", starting: "connecting", paused: "paused", broken: "not connected", blind: "not connected" };

// quiet reports whether what the page shows may have changed without anybody having heard of it.
const quiet = () => ["broken", "blind"].includes(connection.value.state);

// Silence says since when nothing is known, and that the page does not stop trying.
function Silence() {
  useNow(500);
  if (!quiet()) return null;
  const { state, heard } = connection.value;
  const left = nextTry.value === null ? null : Math.max(0, Math.ceil((nextTry.value - Date.now()) / 1000));
  return html`<div class="silence"><span role="alert"><strong>${state === "blind" ? "The gateway hears no broker" : "Not connected"}</strong>${": "}${heard === null ? "nothing was heard yet" : `last heard ${clock(heard)}; what this page shows is from then, what comes after is unknown`}</span>
    ${state !== "blind" && html`<span class="soft">${left === null ? "trying now" : `trying again in ${left} s`}</span>`}
    ${state !== "blind" && html`<button onClick=${connect}>Try now</button>`}</div>`;
}

function view(page, { words, query }) {
  switch (page) {
    case "overview": return html`<${Overview} query=${query} />`;
    case "jobs": return words[1] ? html`<${Job} key=${words[1]} id=${words[1]} tab=${words[2] || "timeline"} query=${query} />` : html`<${Jobs} query=${query} />`;
    case "nodes": return html`<${Nodes} query=${query} />`;
    case "submit": return html`<${Submit} query=${query} key=${query.get("clone")} />`;
    case "system": return html`<${System} />`;
  }
  return html`<h1>There is no such page</h1><p><a href="#/overview">Overview</a></p>`;
}

theme();
connect();
// A page that nobody sees keeps no connection: browsers allow six to a server over HTTP/1.1.
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", (e) => { if (e.persisted) connect(); });
render(html`<${App} />`, document.getElementById("app"));
