// Package kubernetes installs the Helm chart on a control plane of Kubernetes: etcd, the API
// server, the controller manager and the scheduler, built from their published modules. Nodes are
// simulated by kwok, which says of each pod that it runs; no container is started. For the files of
// deploy/queues the test itself runs the pods, as processes, beside the controllers of Kueue,
// JobSet and Kubeflow Trainer.
//
// It is a module of its own, so that nothing else depends on Kubernetes. Its go.mod pins the tools,
// and testdata/controllers.txt those controllers; deploy/setup.sh builds them (kubernetes, queues),
// and deploy/e2e-kubernetes.sh runs the tests in a network and a process namespace of their own:
// nothing but the loopback interface can be reached, and no process survives them.
package kubernetes
