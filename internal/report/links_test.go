package report_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	// intoPage is a link to a section of a page, in Markdown, in a message or in a runbook_url.
	intoPage = regexp.MustCompile(`([\w./-]+)\.md#([\w-]+)`)
	// withinPage is one to another section of the same page.
	withinPage = regexp.MustCompile(`\]\(#([\w-]+)\)`)

	headings   = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	codeBlocks = regexp.MustCompile("(?ms)^```.*?^```")
	noAnchor   = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	linkedText = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)
)

// anchors are those that GitHub gives to the headings of a page.
func anchors(text string) map[string]bool {
	found, count := map[string]bool{}, map[string]int{}
	for _, h := range headings.FindAllStringSubmatch(codeBlocks.ReplaceAllString(text, ""), -1) {
		plain := linkedText.ReplaceAllString(h[1], "$1")
		anchor := strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(plain), ""), " ", "-")
		if n := count[anchor]; n > 0 {
			found[anchor+"-"+strconv.Itoa(n)] = true
		} else {
			found[anchor] = true
		}
		count[anchor]++
	}
	return found
}

// Pages link to each other, and messages, alerts and manifests lead to pages.
func TestEveryLinkToASectionLeadsToOneThatIsThere(t *testing.T) {
	root := filepath.Join("..", "..")
	pages := map[string]map[string]bool{} // By name, because messages and pages name the same page differently.
	texts := map[string]string{}
	if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".")) && path != root:
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		switch filepath.Ext(path) {
		case ".md", ".go", ".yaml", ".txt":
		default:
			return nil
		}
		text, err := os.ReadFile(path)
		texts[path] = string(text)
		if name := entry.Name(); filepath.Ext(name) == ".md" {
			if pages[name] == nil {
				pages[name] = map[string]bool{}
			}
			for a := range anchors(string(text)) {
				pages[name][a] = true
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	links := 0
	for path, text := range texts {
		if strings.HasSuffix(path, "links_test.go") {
			continue
		}
		for _, l := range intoPage.FindAllStringSubmatch(text, -1) {
			links++
			if page := filepath.Base(l[1]) + ".md"; pages[page] == nil || !pages[page][l[2]] {
				t.Errorf("%s: %s leads nowhere", path, l[0])
			}
		}
		if filepath.Ext(path) != ".md" {
			continue
		}
		there := anchors(text)
		for _, l := range withinPage.FindAllStringSubmatch(text, -1) {
			links++
			if !there[l[1]] {
				t.Errorf("%s: #%s leads nowhere", path, l[1])
			}
		}
	}
	if links < 150 {
		t.Errorf("only %d links were found", links)
	}
}
