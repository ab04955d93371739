package wasmill

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// The levels of wasi:logging, from the least to the most.
const (
	levelTrace = iota
	levelDebug
	levelInfo
	levelWarn
	levelError
	levelCritical
)

// A logHandler hands messages of log/slog to the host's log: the text as it is, and the attributes behind
// it as key=value. The host adds level and time, and chooses what is shown.
type logHandler struct {
	attributes string
	prefix     string
}

func (h logHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h logHandler) Handle(_ context.Context, record slog.Record) error {
	line := []byte(record.Message)
	line = append(line, h.attributes...)
	record.Attrs(func(attribute slog.Attr) bool {
		line = appendAttribute(line, h.prefix, attribute)
		return true
	})
	logMessage(levelOf(record.Level), "", string(line))
	return nil
}

func (h logHandler) WithAttrs(attributes []slog.Attr) slog.Handler {
	text := []byte(h.attributes)
	for _, attribute := range attributes {
		text = appendAttribute(text, h.prefix, attribute)
	}
	return logHandler{string(text), h.prefix}
}

func (h logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return logHandler{h.attributes, h.prefix + name + "."}
}

func levelOf(level slog.Level) uint32 {
	switch {
	case level < slog.LevelDebug:
		return levelTrace
	case level < slog.LevelInfo:
		return levelDebug
	case level < slog.LevelWarn:
		return levelInfo
	case level < slog.LevelError:
		return levelWarn
	case level < slog.LevelError+4:
		return levelError
	default:
		return levelCritical
	}
}

func appendAttribute(text []byte, prefix string, attribute slog.Attr) []byte {
	value := attribute.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if attribute.Key != "" {
			prefix += attribute.Key + "."
		}
		for _, inner := range value.Group() {
			text = appendAttribute(text, prefix, inner)
		}
		return text
	}
	if attribute.Equal(slog.Attr{}) {
		return text
	}
	text = append(text, ' ')
	text = appendWord(text, prefix+attribute.Key)
	text = append(text, '=')
	if value.Kind() == slog.KindTime {
		return value.Time().AppendFormat(text, time.RFC3339Nano)
	}
	return appendWord(text, value.String())
}

// appendWord quotes what would not read as one word.
func appendWord(text []byte, word string) []byte {
	odd := func(r rune) bool { return r == '"' || r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if word == "" || strings.ContainsFunc(word, odd) {
		return strconv.AppendQuote(text, word)
	}
	return append(text, word...)
}
