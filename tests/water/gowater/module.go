// Flags and configurations of modules, for all commands.

package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/refraction-networking/water"
)

// moduleFlags are the flags of every command with a module.
type moduleFlags struct {
	config string
}

func (f *moduleFlags) register(set *flag.FlagSet) {
	set.StringVar(&f.config, "config", "", "file for the module")
}

// load reads a module into a configuration of the runtime. The module's output goes to standard
// error, since standard output may be the connection.
func (f *moduleFlags) load(path string) (*water.Config, error) {
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	output := water.NewWazeroModuleConfigFactory()
	output.SetStdout(os.Stderr)
	output.SetStderr(os.Stderr)
	config := &water.Config{TransportModuleBin: binary, ModuleConfigFactory: output}
	if f.config != "" {
		content, err := os.ReadFile(f.config)
		if err != nil {
			return nil, err
		}
		config.TransportModuleConfig = water.TransportModuleConfigFromBytes(content)
	}
	return config, nil
}

// reach is the permitted destination of a module that chooses its destination.
type reach struct {
	allowed   []string
	redirects map[string]string
}

func (r *reach) register(set *flag.FlagSet) {
	set.Func("allow", "HOST:PORT that the module may choose; may be given several times", func(text string) error {
		r.allowed = append(r.allowed, text)
		return nil
	})
	r.redirects = map[string]string{}
	set.Func("redirect", "HOST:PORT=HOST:PORT: where a chosen address is found instead", func(text string) error {
		from, to, found := strings.Cut(text, "=")
		if !found {
			return fmt.Errorf("%q is not HOST:PORT=HOST:PORT", text)
		}
		r.redirects[from] = to
		return nil
	})
}

func (r *reach) validate(network, address string) error {
	for _, allowed := range r.allowed {
		if address == allowed {
			return nil
		}
	}
	return fmt.Errorf("the module may not reach %s %s", network, address)
}

func (r *reach) dial(network, address string) (net.Conn, error) {
	if to, redirected := r.redirects[address]; redirected {
		address = to
	}
	return net.Dial(network, address)
}
