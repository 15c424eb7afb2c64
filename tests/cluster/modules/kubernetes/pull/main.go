// Command pull asks a container runtime for images, as a kubelet does.
//
// With crictl this would be `crictl pull`; its module cannot be pinned beside Kubernetes' own.
// Usage: pull unix:///run/containerd/containerd.sock IMAGE...
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: pull ENDPOINT IMAGE...")
		os.Exit(2)
	}
	images, err := remote.NewRemoteImageService(os.Args[1], 10*time.Second, nil, nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, name := range os.Args[2:] {
		started := time.Now()
		spec := &runtimeapi.ImageSpec{Image: name}
		if _, err := images.PullImage(context.Background(), spec, nil, nil); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		fmt.Printf("%s %.1f s\n", name, time.Since(started).Seconds())
	}
}
