package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"time"

	"github.com/regroup-io/regroup/agent/errorfile"
	"github.com/regroup-io/regroup/agent/logs"
	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/agent/workerapi"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/output"
	"github.com/regroup-io/regroup/internal/errorreport"
	"github.com/regroup-io/regroup/internal/spawn"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// do performs one action without blocking.
func (a *Agent) do(work context.Context, act worker.Action) {
	switch act := act.(type) {
	case worker.StartProcess:
		a.start(act)
	case worker.SignalProcess:
		if err := a.opt.Driver.Signal(act.Worker, act.Signal); err != nil {
			a.opt.Logger.Error("signal", "node", a.opt.Node, "reason", err)
			a.opt.Driver.Kill(act.Worker) // it cannot be stopped gracefully
		}
	case worker.KillProcess:
		a.opt.Driver.Kill(act.Worker)
	case worker.KeepSpares:
		a.keepSpares(act)
	case worker.ExamineProcess:
		a.opt.Driver.Examine(act.Worker)
	case worker.PrepareMaster:
		a.inputs.put(a.prepareMaster(work, act))
	case worker.ReleaseMaster:
		a.releaseMaster(act.Address)
	case worker.SendJoin:
		a.gather(act.Join)
	case worker.AnswerJoin:
		a.api.Answer(string(act.Worker), act.Assignment)
	case worker.RefuseJoin:
		a.api.Refuse(string(act.Worker), &workerapi.Refusal{Status: status(act.Code), Code: string(act.Code), Message: act.Reason})
	case worker.PushChange:
		a.api.Push(string(act.Worker), act.Change)
	case worker.PublishFact:
		a.facts.enqueue(act, a.stepped)
	case worker.SendNotice:
		a.send(events.NoticeSubject(act.Notice.Exited.Job), events.NoticeEnvelope{Notice: &act.Notice})
	case worker.SendProgress:
		a.opt.Reported(act.Progress)
		a.send(events.ProgressSubject(act.Progress.Job), act.Progress)
	case worker.RecordSpan:
		a.opt.Observe(act.Span)
	}
}

// start registers the worker's token and passes the worker to the driver.
func (a *Agent) start(s worker.StartProcess) {
	token := rand.Text()
	a.api.Admit(token, string(s.Worker))
	s.Env = maps.Clone(s.Env)
	s.Env[workerprotocol.EnvToken] = token
	var err error
	if s.Account, err = a.opt.account(s.User); err == nil {
		err = a.prepare(s.Env, s.Account)
	}
	if err != nil {
		a.inputs.put(worker.ProcessFailedToStart{Worker: s.Worker, ExitCode: cannotStart, Detail: err.Error(), NodeFault: spawn.Exhausted(err)})
		return
	}
	a.show() // its first line must carry its rank
	if folder := a.checkpointFolder(s); folder != "" {
		s.Env[workerprotocol.EnvCheckpointDefaultDir] = folder
	}
	if err := a.inherit(s.Job, s.Account, &s.Inherited, &s.Dir); err != nil {
		text := fmt.Sprintf("regroup: this worker has the folder and the environment of the agent of %s, not those in which the job was submitted: %v", a.opt.Node, err)
		a.output(s, "stderr", []output.Line{{Text: text}})
	}
	a.opt.Driver.Start(s, a.fromDriver(s, a.placeErrorFile(s)), func(stream string, lines []output.Line) { a.output(s, stream, lines) })
}

// cannotStart is the exit code of a shell for a command that cannot be executed.
const cannotStart = 126

func (a *Agent) keepSpares(k worker.KeepSpares) {
	wrong := func(reason string) {
		a.opt.Logger.Warn("a spare is not as it should be", "node", a.opt.Node, "job", k.Job, "reason", reason)
	}
	said := ""
	changed := func(s worker.SparesKept) {
		if s.Problem != said && s.Problem != "" {
			wrong(s.Problem)
		}
		said = s.Problem
		a.inputs.put(s)
	}
	var err error
	if k.Account, err = a.opt.account(k.User); err != nil {
		changed(worker.SparesKept{Job: k.Job, Request: k.Request, Problem: err.Error()}) // the workers do not start either
		return
	}
	if err := a.inherit(k.Job, k.Account, &k.Inherited, &k.Dir); err != nil {
		wrong(err.Error())
	}
	a.opt.Driver.KeepSpares(k, changed)
}

// For so long the fact of an exit waits until the output is stored, so that who reads until the end
// of a job reads all of it. The recovery after a failure hardly waits: the fact has the last lines.
const (
	outputFirst       = 2 * time.Second
	outputFirstFailed = 20 * time.Millisecond
)

// fromDriver returns the function for the driver's inputs, to which it adds the program's own
// report of its end. kept is where its error file is kept; empty = nowhere.
func (a *Agent) fromDriver(s worker.StartProcess, kept string) func(worker.Input) {
	return func(in worker.Input) {
		if x, ok := in.(worker.ProcessExited); ok {
			at := time.Now()
			var hide func(string) string
			if len(s.Secrets) > 0 {
				hide = func(text string) string { return a.opt.Driver.Conceal(s.Worker, text) }
			}
			file := s.Env[errorreport.Env]
			if err := errorfile.Keep(file, kept, s.Account, hide); err != nil {
				a.opt.Logger.Warn("an error file is not kept as it should be", "node", a.opt.Node, "job", s.Job, "file", kept, "reason", err)
			}
			errorfile.Record(&x, file, kept, s.Account, s.Dir, at)
			if hide != nil {
				errorfile.Conceal(&x, hide)
			}
			x.Dropped = a.logs.Ended(s.Job, s.Place) // the driver has passed on all of its output
			if x.ExitCode == 0 {
				a.logs.Await(s.Job, s.Place, outputFirst)
			} else {
				a.logs.Await(s.Job, s.Place, outputFirstFailed)
			}
			in = reportedExit{x, at}
		}
		a.inputs.put(in)
	}
}

// placeErrorFile returns where the error file of a worker is kept, "" = nowhere. A worker of the
// agent's own user writes it there.
func (a *Agent) placeErrorFile(s worker.StartProcess) string {
	w := a.snapshot.Load().workers[s.Worker]
	if a.opt.ErrorFile == nil || s.Env[errorreport.Env] == "" || w.Generation == 0 {
		return "" // its local rank is not known before it has joined
	}
	kept := a.opt.ErrorFile(w.LocalRank, w.Generation)
	if kept != "" && !another(s.Account) {
		s.Env[errorreport.Env] = kept
	}
	return kept
}

func (a *Agent) output(s worker.StartProcess, stream string, lines []output.Line) {
	l := logs.Line{Job: s.Job, Place: s.Place, Rank: ident.NoRank, Generation: s.Generation, Stream: stream, Trace: s.Env[workerprotocol.EnvTraceparent]}
	if w, ok := a.snapshot.Load().workers[s.Worker]; ok {
		l.Rank, l.LocalRank, l.Generation = w.Rank, w.LocalRank, w.Generation
	}
	for _, x := range lines {
		l.Text, l.Open = x.Text, x.Open
		a.opt.Output(l)
		a.logs.Add(l)
	}
}

// send sends a signal. One that cannot be sent counts as lost.
func (a *Agent) send(subject string, b events.Body) {
	data, err := bodies.Encode(b)
	if err == nil {
		err = a.opt.Ports.Signals.Send(subject, data)
	}
	if err != nil {
		a.opt.Logger.Debug("signal not sent", "kind", b.Type(), "reason", err)
	}
}

var statuses = map[errcode.Code]int{
	errcode.Invalid: 400, errcode.NotFound: 404, errcode.Conflict: 409, errcode.Fenced: 409, errcode.TooLarge: 413,
	errcode.Unavailable: 503, errcode.Cancelled: 503, errcode.Exhausted: 507,
}

func status(c errcode.Code) int { return cmp.Or(statuses[c], 500) }
