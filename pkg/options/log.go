package options

import (
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
)

// Log says what is logged, and how.
type Log struct {
	Level, Format string
}

func (l *Log) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&l.Level, "log-level", l.Level,
		"one of panic, fatal, error, warn, info, debug, trace (info is one line per change of decision)")
	fs.StringVar(&l.Format, "log-format", l.Format, "text or json")
}

func (l *Log) validate(name namer) error {
	var errs []error
	if _, err := logrus.ParseLevel(l.Level); err != nil {
		errs = append(errs, fmt.Errorf("%s: %q: use panic, fatal, error, warn, info, debug or trace",
			name("log-level"), l.Level))
	}
	if l.Format != "text" && l.Format != "json" {
		errs = append(errs, fmt.Errorf("%s: %q: use text or json", name("log-format"), l.Format))
	}
	return errors.Join(errs...)
}

// Logger returns the logger that the flags ask for.
func (l *Log) Logger() *logrus.Logger {
	log := logrus.New()
	if level, err := logrus.ParseLevel(l.Level); err == nil {
		log.SetLevel(level)
	}
	if l.Format == "json" {
		log.SetFormatter(&logrus.JSONFormatter{TimestampFormat: time.RFC3339Nano})
	} else {
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true})
	}
	return log
}
