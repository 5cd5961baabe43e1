// The frame of the pages: the address after # selects one.
import { html, render } from "htm/preact";
import { useEffect, useState } from "preact/hooks";
import { connect, connected, disconnect, loggedOut, request } from "./api.js";
import { Overview } from "./overview.js";
import { Jobs } from "./jobs.js";
import { Job } from "./job.js";
import { Nodes } from "./nodes.js";
import { System } from "./system.js";

const pages = [["overview", "Overview"], ["jobs", "Jobs"], ["nodes", "Nodes"], ["system", "System"]];

// route splits #/jobs/x/logs?q=1 into its words and its query.
function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  return { words: path.split("/").filter(Boolean).map(decodeURIComponent), query: new URLSearchParams(query || "") };
}

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
  useEffect(() => {
    const changed = () => { set(route()); window.scrollTo(0, 0); };
    const key = (e) => {
      if (e.key !== "/" || e.target.closest("input, textarea, select")) return;
      const search = document.querySelector("input[type=search]");
      if (search) { e.preventDefault(); search.focus(); } else { location.hash = "#/jobs"; }
    };
    addEventListener("hashchange", changed);
    addEventListener("keydown", key);
    return () => { removeEventListener("hashchange", changed); removeEventListener("keydown", key); };
  }, []);
  const page = at.words[0] || "overview";
  useEffect(() => {
    const name = at.words[1] || (pages.find(([p]) => p === page) || ["", "Not found"])[1];
    document.title = `${name} · Regroup`;
  }, [page, at.words[1]]);
  if (loggedOut.value) return html`<${Login} />`;
  return html`
    <a class="skip" href="#main" onClick=${(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>Skip to the page</a>
    <header class="top">
      <a class="brand" href="#/overview"><img src="/icon.svg" alt="" />Regroup</a>
      <nav aria-label="Pages">${pages.map(([name, text]) => html`<a href="#/${name}" aria-current=${page === name ? "page" : null}>${text}</a>`)}</nav>
      <span class="connection" role="status"><span class="dot ${connected.value ? "on" : ""}"></span>${connected.value ? "live" : "not connected"}</span>
    </header>
    <main id="main" tabindex="-1">${view(page, at)}</main>`;
}

function view(page, { words, query }) {
  switch (page) {
    case "overview": return html`<${Overview} />`;
    case "jobs": return words[1] ? html`<${Job} key=${words[1]} id=${words[1]} tab=${words[2] || "timeline"} query=${query} />` : html`<${Jobs} query=${query} />`;
    case "nodes": return html`<${Nodes} />`;
    case "system": return html`<${System} />`;
  }
  return html`<h1>There is no such page</h1><p><a href="#/overview">Overview</a></p>`;
}

connect();
// A page that nobody sees keeps no connection: browsers allow six to a server over HTTP/1.1.
document.addEventListener("visibilitychange", () => (document.hidden ? disconnect() : connect()));
addEventListener("pagehide", disconnect);
addEventListener("pageshow", (e) => { if (e.persisted) connect(); });
render(html`<${App} />`, document.getElementById("app"));
