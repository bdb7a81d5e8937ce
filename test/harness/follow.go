package harness

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// handler gets what a watch delivers, one object at a time. An object is initial if it was there before
// the watch began.
type handler[T runtime.Object] struct {
	seen func(object T, initial bool)
	gone func(object T)
}

// follow watches objects until stop is called, even while the API server is gone for a while. When stop
// returns, the handler is no longer called. The context bounds the start and the watch.
func follow[T, List runtime.Object](
	ctx context.Context, client kubernetes.Interface,
	list func(context.Context, metav1.ListOptions) (List, error),
	open func(context.Context, metav1.ListOptions) (watch.Interface, error),
	narrow func(*metav1.ListOptions), kind T, h handler[T],
) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	stop = func() {
		cancel()
		<-done
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		// A client may be a fake, which cannot stream its lists.
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				narrow(&o)
				return list(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				narrow(&o)
				return open(ctx, o)
			},
		}, client),
		ObjectType: kind,
		Handler: cache.ResourceEventHandlerDetailedFuncs{
			AddFunc:    func(o any, initial bool) { h.seen(o.(T), initial) },
			UpdateFunc: func(_, o any) { h.seen(o.(T), false) },
			DeleteFunc: func(o any) {
				if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
					o = d.Obj
				}
				h.gone(o.(T))
			},
		},
	})
	go func() {
		defer close(done)
		informer.RunWithContext(ctx)
	}()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		err := context.Cause(ctx)
		stop()
		return nil, err
	}
	return stop, nil
}
