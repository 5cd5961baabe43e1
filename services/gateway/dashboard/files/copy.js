// Things to copy: commands, links.
import { html } from "htm/preact";
import { useEffect, useState } from "preact/hooks";

// Copy is a button that copies a text, and says for a moment that it has.
export function Copy({ text, name = "Copy" }) {
  const [said, say] = useState("");
  useEffect(() => {
    const timer = said && setTimeout(() => say(""), 2000);
    return () => clearTimeout(timer);
  }, [said]);
  const go = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say("Copied");
    } catch { say("Not allowed"); } // over HTTP from another machine browsers refuse it
  };
  return html`<button class="fixed small" onClick=${go}><span class=${said ? "hidden" : null}>${name}</span><span class=${said ? null : "hidden"} role="status">${said}</span></button>`;
}

// Command is a command of the command line, to be copied.
export const Command = ({ text }) => html`<span class="command"><code>${text}</code><${Copy} text=${text} /></span>`;
