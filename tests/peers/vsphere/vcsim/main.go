// vcsim: a vCenter simulator on govmomi's simulator library, with the flags the tests need.
// The registry has the library but not vcsim's own module, so this main replaces it.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/vmware/govmomi/simulator"
	_ "github.com/vmware/govmomi/vapi/simulator" // tags
)

func main() {
	model := simulator.VPX()
	listen := flag.String("l", "127.0.0.1:0", "address to listen on")
	useTLS := flag.Bool("tls", true, "serve HTTPS")
	username := flag.String("username", "", "the only user name accepted (default: any)")
	password := flag.String("password", "", "the only password accepted (default: any)")
	load := flag.String("load", "", "load the inventory from a folder that `govc object.save` wrote")
	methodDelay := flag.String("method-delay", "", "latency per method: Name:ms,Name:ms")
	instance := flag.String("instance-uuid", "", "who this vCenter is (default: the same for all of a machine)")
	standalone := flag.Bool("esx", false, "be an ESXi host rather than a vCenter")
	flag.IntVar(&model.Datacenter, "dc", model.Datacenter, "datacenters")
	flag.IntVar(&model.Cluster, "cluster", model.Cluster, "clusters per datacenter")
	flag.IntVar(&model.ClusterHost, "host", model.ClusterHost, "hosts per cluster")
	flag.IntVar(&model.Host, "standalone-host", 0, "hosts outside any cluster")
	flag.IntVar(&model.Machine, "vm", model.Machine, "virtual machines per resource pool")
	flag.IntVar(&model.DelayConfig.Delay, "delay", 0, "latency of every method in ms")
	flag.Parse()

	if *standalone {
		delay := model.DelayConfig
		model = simulator.ESX()
		model.DelayConfig = delay
	}
	if *instance != "" {
		model.ServiceContent.About.InstanceUuid = *instance
	}
	if *methodDelay != "" {
		delays := map[string]int{}
		for entry := range strings.SplitSeq(*methodDelay, ",") {
			name, ms, ok := strings.Cut(entry, ":")
			value, err := strconv.Atoi(ms)
			if !ok || err != nil {
				log.Fatalf("-method-delay: %q is not Name:ms", entry)
			}
			delays[name] = value
		}
		model.DelayConfig.MethodDelay = delays
		simulator.TaskDelay.MethodDelay = delays
	}

	var err error
	if *load == "" {
		err = model.Create()
	} else {
		err = model.Load(*load)
	}
	if err != nil {
		log.Fatal(err)
	}
	defer model.Remove()

	address := &url.URL{Host: *listen}
	if *username != "" {
		address.User = url.UserPassword(*username, *password)
	}
	model.Service.RegisterEndpoints = true
	model.Service.Listen = address
	model.Service.ServeMux = http.NewServeMux()
	if *useTLS {
		model.Service.TLS = new(tls.Config)
	}
	server := model.Service.NewServer()
	fmt.Printf("export GOVC_URL=%s\n", server.URL)

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
