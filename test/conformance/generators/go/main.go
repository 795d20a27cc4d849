// The program checks that values and fields of a newer server do not break the clients that ogen and OpenAPI Generator make, and
// that an unknown charge is not a false.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"generators/ogen"
	"generators/openapigenerator"
)

const newCode, newType = "code_of_a_newer_server", "type_of_a_newer_server"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	file, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	var ofOgen struct {
		Error  ogen.ParleyError `json:"error"`
		Unread ogen.UnreadPage  `json:"unread"`
	}
	if err := json.Unmarshal(file, &ofOgen); err != nil {
		return fmt.Errorf("ogen: %w", err)
	}
	if e := ofOgen.Error; e.Code != newCode || e.Charged.Set || ofOgen.Unread.Notices[0].Type != newType {
		return fmt.Errorf("ogen reads %+v", ofOgen)
	}
	if err := ofOgen.Unread.Validate(); err != nil {
		return fmt.Errorf("ogen: %w", err)
	}
	var ofOpenAPIGenerator struct {
		Error  openapigenerator.ParleyError `json:"error"`
		Unread openapigenerator.UnreadPage  `json:"unread"`
	}
	if err := json.Unmarshal(file, &ofOpenAPIGenerator); err != nil {
		return fmt.Errorf("OpenAPI Generator: %w", err)
	}
	if e := ofOpenAPIGenerator.Error; e.Code != newCode || e.Charged != nil || ofOpenAPIGenerator.Unread.Notices[0].Type != newType {
		return fmt.Errorf("OpenAPI Generator reads %+v", ofOpenAPIGenerator)
	}
	return nil
}
