// Command policies is that part of kube-router alone that enforces NetworkPolicies.
//
// The whole program also speaks BGP, replaces kube-proxy and asks Docker: several times as much to
// compile. Its firewall is used as it is; this starts it, as pkg/cmd of kube-router does.
package main

import (
	"log"
	"net/http"
	"sync"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	var health string
	settings := options.NewKubeRouterConfig()
	settings.AddFlags(pflag.CommandLine)
	pflag.StringVar(&health, "health-address", "", "where /healthz answers once rules are written")
	pflag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", settings.Kubeconfig)
	check(err)
	client, err := kubernetes.NewForConfig(config)
	check(err)
	never := make(chan struct{})
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	factory.Start(never)
	factory.WaitForCacheSync(never)

	tables, sets, err := netpol.NewIPTablesHandlers(settings)
	check(err)
	var lock sync.Mutex
	firewall, err := netpol.NewNetworkPolicyController(
		client, settings, pods, policies, namespaces, &lock, tables, sets)
	check(err)
	listen(pods, firewall.PodEventHandler)
	listen(namespaces, firewall.NamespaceEventHandler)
	listen(policies, firewall.NetworkPolicyEventHandler)

	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		// The first beat comes when the top-level chains are there, before the first rules.
		<-beats
		http.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
		go func() { check(http.ListenAndServe(health, nil)) }()
		for range beats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	firewall.Run(beats, never, &running)
}

func listen(source cache.SharedIndexInformer, handler cache.ResourceEventHandler) {
	_, err := source.AddEventHandler(handler)
	check(err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
