package report

import "github.com/quorate/quorate/test/bench/result"

func Write(*result.Run, string) error { return nil }
