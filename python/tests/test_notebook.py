"""What a notebook shows of jobs and incidents."""

import base64
import copy
import html.parser
import json
import pickle
import re
import unittest
import xml.etree.ElementTree

from regroup import notebook


def incident(number=1, **more):
    place = {"node": "node-c", "slot": 0}
    cause = {"kind": "worker-failed", "place": place, "rank": 2, "detail": "<b>killed</b> & gone"}
    return {
        "incident": number,
        "from": 1,
        "to": 2,
        "cause": cause,
        "total_ms": 4000,
        "phases_ms": {"notice": 100, "abort": 0, "judge": 900, "regroup": 1000, "sync": 500, "first_step": 1500},
        "steps_lost": 1,
        **more,
    }


def job(**more):
    def worker(rank, generation, state):
        return {"rank": rank, "generation": generation, "state": state}

    train = [worker(0, 3, "ready"), worker(1, 3, "running")]
    do_not = [worker(2, 2, "ready"), worker(None, 0, "starting"), worker(3, 3, "lost")]
    return notebook.Job(
        {
            "job": "mnist-7f3a",
            "state": "running",
            "spec": {"workers": {"min": 2, "max": 4}},
            "generation": 3,
            "step": 4612,
            "goodput": 0.974,
            "workers": train + do_not,
            "incidents": [incident()],
            **more,
        }
    )


class Reader(html.parser.HTMLParser):
    """Checks that elements are closed in their order, and keeps the text."""

    def __init__(self, text):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(text)
        self.close()
        if self.open:
            raise AssertionError(f"open: {self.open}")

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in ("br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open.pop() != tag:
            raise AssertionError(f"{tag} ends out of its order")

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)


class Notebook(unittest.TestCase):
    def test_a_job(self):
        shown = Reader(job()._repr_html_())
        cause = "worker-failed r2 on node-c/0: <b>killed</b> & gone"
        for want in ("mnist-7f3a", "running", "2 of 2-4", "4612", "97.4 %", cause, "4.0s"):
            self.assertIn(want, shown.text)
        self.assertEqual(1, [tag for tag, _ in shown.elements].count("b"), "what a cause says is no markup")

    def test_what_is_unknown(self):
        shown = Reader(job(goodput=None, step=0, generation=0)._repr_html_()).text
        self.assertIn("unknown", shown)
        self.assertNotIn("0.0 %", shown)
        bounded = Reader(job(goodput=0.5, goodput_at_most=True)._repr_html_()).text
        self.assertIn("at most 50.0 %", bounded)
        lost = Reader(notebook.Incidents([incident(steps_lost=None), incident(2, at_least=True)])._repr_html_()).text
        self.assertIn("unknown", lost)
        self.assertIn("at least 1", lost)
        silent = notebook.Incidents([incident(silence_ms=238000), incident(2, silence_unknown=True), incident(3, to=0)])
        shown = Reader(silent._repr_html_()).text
        self.assertIn("no step was observed for 3m58s before", shown)
        self.assertIn("for how long nobody had observed it before is unknown", shown)
        self.assertIn("the job ended with it", shown)

    def test_an_open_incident(self):
        cause = {"kind": "grow", "place": {"node": "node-d", "slot": 1}, "rank": None}
        shown = Reader(job(open={"incident": 2, "cause": cause})._repr_html_()).text
        self.assertIn("#2 grow node-d/1, open", shown)

    def test_phases_are_bars_of_one_scale(self):
        text = notebook.Incidents([incident(), incident(2, total_ms=2000, phases_ms={"judge": 2000})])._repr_html_()
        long, short = [xml.etree.ElementTree.fromstring(s) for s in re.findall(r"<svg.*?</svg>", text)]
        widths = [[float(r.get("width")) for r in bar if r.tag.endswith("rect")] for bar in (long, short)]
        self.assertAlmostEqual(240, sum(widths[0]), delta=0.5)
        self.assertEqual([120.0], widths[1])
        self.assertEqual(5, len(widths[0]), "a phase without time has no bar")
        self.assertEqual("notice 100ms", long[0][0].text)

    def test_lists(self):
        waiting = job(job="<i>", state="waiting", workers=None, incidents=None)
        shown = Reader(notebook.Jobs([job(), waiting])._repr_html_())
        self.assertIn("<i>", shown.text)
        self.assertNotIn("i", [tag for tag, _ in shown.elements])
        self.assertIn("0 of 2-4", shown.text)
        self.assertEqual("<div>no jobs</div>", notebook.Jobs()._repr_html_())
        self.assertEqual("<div>no incidents</div>", notebook.Incidents()._repr_html_())

    def test_nothing_is_fixed_for_light_or_dark_pages(self):
        """Text has the colour of the page; only what has a ground of its own is white."""
        for _, attributes in Reader(job()._repr_html_()).elements:
            style = attributes.get("style") or ""
            if re.search(r"(?<![-\w])color:(?!inherit)", style):
                self.assertIn("background:#", style)

    def test_a_timeline_is_an_image(self):
        """What the server drew is in the page as data: nothing of it is markup of the page."""
        svg = "<svg xmlns='http://www.w3.org/2000/svg'><style>text{fill:red}</style><script>x</script>ü</svg>"
        shown = Reader(notebook.Job(job(job="'<b>"), draw=lambda: svg)._repr_html_())
        (image,) = [attributes for tag, attributes in shown.elements if tag == "img"]
        kind, _, data = image["src"].partition(",")
        self.assertEqual("data:image/svg+xml;base64", kind)
        self.assertEqual(svg, base64.b64decode(data).decode())
        self.assertEqual("timeline of '<b>", image["alt"])
        self.assertNotIn("script", [tag for tag, _ in shown.elements])
        for without in (job(), notebook.Job(job(), draw=lambda: None)):
            self.assertNotIn("<img", without._repr_html_())
        drawn = notebook.Job(job(), draw=lambda: svg)
        for same in (copy.deepcopy(drawn), pickle.loads(pickle.dumps(copy.copy(drawn)))):
            self.assertEqual((dict(drawn), notebook.Job), (same, type(same)))

    def test_they_are_the_data(self):
        self.assertEqual(dict(job()), json.loads(json.dumps(job())))
        self.assertEqual(job()["incidents"], list(job().incidents))


if __name__ == "__main__":
    unittest.main()
