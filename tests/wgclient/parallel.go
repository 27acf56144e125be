// Parallel work for actions with many connections.

package main

import (
	"errors"
	"sync"
)

// inParallel runs work(0..n) in parallel and joins the results, or returns the first error.
func inParallel[T any](n int, work func(index int) ([]T, error)) ([]T, error) {
	if n < 1 {
		return nil, errors.New("at least 1 has to run")
	}
	results := make([][]T, n)
	failures := make([]error, n)
	var group sync.WaitGroup
	for index := range n {
		group.Go(func() { results[index], failures[index] = work(index) })
	}
	group.Wait()
	var all []T
	for _, result := range results {
		all = append(all, result...)
	}
	return all, errors.Join(failures...)
}
