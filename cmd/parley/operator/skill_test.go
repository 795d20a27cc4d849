package operator

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/parley-chat/parley/internal/testkit"
)

// TestSkillExample: the contract shows what GET /skill tells where the operator says nothing else.
func TestSkillExample(t *testing.T) {
	t.Parallel()
	told := AgentSkill
	example := testkit.Contract.Paths.Value("/skill").Get.Responses.Value("200").Value.Content["application/json"].Example
	want := map[string]any{"skill": map[string]any{
		"summary": told.Summary, "hub_url": told.HubURL, "install": map[string]any{"npx": told.InstallNPX, "cli": told.InstallCLI},
	}}
	if diff := cmp.Diff(want, example); diff != "" {
		t.Errorf("the example of /skill is not what is told (-told +example):\n%s", diff)
	}
}
