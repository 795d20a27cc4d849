// Package deploy checks the files of deploy/ that no other check runs: the Kubernetes manifests by the types of Kubernetes, which know
// every field, and compose.yaml by Compose's own parser. It needs neither a cluster nor Docker.
package deploy

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of deploy/kubernetes.
type manifests struct {
	deployment appsv1.Deployment
	budget     policyv1.PodDisruptionBudget
	services   []corev1.Service
	config     corev1.ConfigMap
	secrets    []corev1.Secret
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// decode reads an object as an API server does with strict validation: an unknown field or a field given twice is an error.
func decode[T any](t *testing.T, document []byte) T {
	t.Helper()
	var object T
	text, err := yaml.YAMLToJSONStrict(document)
	noError(t, err)
	wrong, err := json.UnmarshalStrict(text, &object)
	if err := errors.Join(append(wrong, err)...); err != nil {
		t.Errorf("%v in\n%s", err, document)
	}
	return object
}

func read(t *testing.T) (m manifests) {
	t.Helper()
	for _, name := range []string{"parley.yaml", "secret.yaml"} {
		text, err := os.ReadFile("../../../deploy/kubernetes/" + name)
		noError(t, err)
		documents := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
		for {
			buffer := make([]byte, 1<<20)
			length, err := documents.Read(buffer)
			if errors.Is(err, io.EOF) {
				break
			}
			noError(t, err)
			m.add(t, buffer[:length])
		}
	}
	return m
}

func (m *manifests) add(t *testing.T, document []byte) {
	t.Helper()
	var meta metav1.TypeMeta
	noError(t, yaml.Unmarshal(document, &meta))
	switch meta.APIVersion + " " + meta.Kind {
	case "apps/v1 Deployment":
		m.deployment = decode[appsv1.Deployment](t, document)
	case "policy/v1 PodDisruptionBudget":
		m.budget = decode[policyv1.PodDisruptionBudget](t, document)
	case "v1 Service":
		m.services = append(m.services, decode[corev1.Service](t, document))
	case "v1 ConfigMap":
		m.config = decode[corev1.ConfigMap](t, document)
	case "v1 Secret":
		m.secrets = append(m.secrets, decode[corev1.Secret](t, document))
	default:
		t.Errorf("a manifest is a %s %s", meta.APIVersion, meta.Kind)
	}
}

// TestContainersAreRestricted: every container runs without root, capabilities and a root that it can write, as the Pod Security Standard
// "restricted" demands.
func TestContainersAreRestricted(t *testing.T) {
	t.Parallel()
	pod := read(t).deployment.Spec.Template.Spec
	if c := pod.SecurityContext; c == nil || c.RunAsNonRoot == nil || !*c.RunAsNonRoot || c.RunAsUser == nil || *c.RunAsUser != 65532 ||
		c.SeccompProfile == nil || c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod's security context is %+v", pod.SecurityContext)
	}
	for _, container := range append(pod.InitContainers, pod.Containers...) {
		if c := container.SecurityContext; c == nil || c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation ||
			c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem || c.Capabilities == nil || !slices.Contains(c.Capabilities.Drop, "ALL") {
			t.Errorf("the security context of %s is %+v", container.Name, container.SecurityContext)
		}
		if container.Resources.Limits.Memory().IsZero() || container.Resources.Requests.Cpu().IsZero() {
			t.Errorf("%s has no limit of memory, or asks for no processor", container.Name)
		}
	}
}

// TestNamesAgree: selectors find the pods, probes and services the ports, volumes the objects, and files the keys of the secrets.
func TestNamesAgree(t *testing.T) {
	t.Parallel()
	m := read(t)
	pod, labels := m.deployment.Spec.Template, m.deployment.Spec.Template.Labels
	server := pod.Spec.Containers[0]
	ports := map[string]int32{}
	for _, port := range server.Ports {
		ports[port.Name] = port.ContainerPort
	}
	selectors := []map[string]string{m.deployment.Spec.Selector.MatchLabels, m.budget.Spec.Selector.MatchLabels}
	for _, service := range m.services {
		selectors = append(selectors, service.Spec.Selector)
		if target := service.Spec.Ports[0].TargetPort; target.Type != intstr.String || ports[target.StrVal] == 0 {
			t.Errorf("the service %s leads to the port %v", service.Name, target)
		}
	}
	for _, selector := range selectors {
		for key, value := range selector {
			if labels[key] != value {
				t.Errorf("a selector wants %s=%s; pods have %v", key, value, labels)
			}
		}
	}
	for path, probe := range map[string]*corev1.Probe{"/livez": server.LivenessProbe, "/readyz": server.ReadinessProbe} {
		if probe.HTTPGet.Path != path || ports[probe.HTTPGet.Port.StrVal] != 8404 {
			t.Errorf("a probe asks %+v, want %s", probe.HTTPGet, path)
		}
	}
	if !strings.Contains(m.config.Data["parley.yaml"], "admin-listen: 0.0.0.0:8404\n") {
		t.Errorf("the configuration has another admin listener than the probes: %s", m.config.Data["parley.yaml"])
	}
	checkSecrets(t, m)
}

// checkSecrets compares the files that variables name with mounted secrets and their keys.
func checkSecrets(t *testing.T, m manifests) {
	t.Helper()
	keys := map[string]map[string]string{}
	for _, secret := range m.secrets {
		keys[secret.Name] = secret.StringData
	}
	pod := m.deployment.Spec.Template.Spec
	secretOf := map[string]string{}
	for _, volume := range pod.Volumes {
		if volume.Secret != nil {
			secretOf[volume.Name] = volume.Secret.SecretName
		}
	}
	for _, container := range append(pod.InitContainers, pod.Containers...) {
		mounted := map[string]bool{}
		for _, mount := range container.VolumeMounts {
			for key := range keys[secretOf[mount.Name]] {
				mounted[mount.MountPath+"/"+key] = true
			}
		}
		for _, variable := range container.Env {
			if file, ok := strings.CutPrefix(variable.Value, "file:"); ok && !mounted[file] {
				t.Errorf("%s of %s names %s, which no secret mounts", variable.Name, container.Name, file)
			}
		}
	}
}

// TestCalmTermination: a pod has the time to drain and to finish calls that wait for their settlement.
func TestCalmTermination(t *testing.T) {
	t.Parallel()
	m := read(t)
	if grace := m.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds; grace == nil || *grace < 15+105 {
		t.Errorf("the grace period is %v; drain-time and settlement take 120 seconds", grace)
	}
	update := m.deployment.Spec.Strategy.RollingUpdate
	if *m.deployment.Spec.Replicas != 2 || update.MaxUnavailable.IntVal != 0 || m.budget.Spec.MaxUnavailable.IntVal != 1 {
		t.Error("a replacement or a drained node may end both servers")
	}
}

// TestCompose: Compose accepts compose.yaml, and Parley runs without privileges.
func TestCompose(t *testing.T) {
	t.Parallel()
	options, err := cli.NewProjectOptions([]string{"../../../deploy/compose.yaml"}, cli.WithEnv([]string{
		"PARLEY_DOMAIN=parley.example", "PARLEY_PAYEE=0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
		"PARLEY_FACILITATOR_URL=https://facilitator.example",
		"PARLEY_RPC_URL=https://rpc.example", "POSTGRES_PASSWORD=play",
	}))
	noError(t, err)
	project, err := options.LoadProject(t.Context())
	noError(t, err)
	for _, name := range []string{"parley", "migrate"} {
		service := project.Services[name]
		if !service.ReadOnly || !slices.Equal(service.CapDrop, []string{"ALL"}) ||
			!slices.Equal(service.SecurityOpt, []string{"no-new-privileges:true"}) {
			t.Errorf("%s may do too much: %+v", name, service)
		}
	}
	if ports := project.Services["parley"].Ports; ports != nil {
		t.Errorf("Parley is reachable without Caddy: %v", ports)
	}
	if grace := project.Services["parley"].StopGracePeriod; grace == nil || grace.String() != "2m10s" {
		t.Errorf("Parley has %v to stop", grace)
	}
	proxies := project.Services["parley"].Environment["PARLEY_TRUSTED_PROXIES"]
	if subnet := project.Networks["default"].Ipam.Config[0].Subnet; proxies == nil || *proxies != subnet {
		t.Errorf("the network is %s; trusted proxies are %v", subnet, proxies)
	}
	missing, err := cli.NewProjectOptions([]string{"../../../deploy/compose.yaml"})
	noError(t, err)
	if _, err := missing.LoadProject(t.Context()); err == nil {
		t.Error("Compose accepts compose.yaml without the required settings")
	}
}
