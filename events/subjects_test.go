package events

import "testing"

func TestSubjects(t *testing.T) {
	for got, want := range map[string]string{
		CommandSubject(JobSubmit{}.Type()):          "regroup.cmd.job.submit",
		FactSubject(WorkerExited{}.Type(), "j"):     "regroup.evt.worker.j.exited",
		FamilySubject(FamilyRound, "*"):             "regroup.evt.round.*.>",
		EntityOfFact("regroup.evt.job.j.submitted"): "j",
		EntityOfFact("regroup.cmd.job.submit"):      "",
		LaunchSubject("n", "*"):                     "regroup.launch.n.*",
		AgentSubject("n", VerbPing):                 "regroup.req.agent.n.ping",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
