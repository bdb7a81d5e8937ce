// The shape of the dashboard, by the types with which Grafana itself is built. The dashboard's
// JSON is appended to this file as a constant of type Dashboard and the whole is type-checked, so
// that a property that Grafana does not know, a wrong enumeration or a missing field is an error.
import type * as grafana from "@grafana/schema";
import type * as barGauge from "@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen";
import type * as stat from "@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen";
import type * as stateTimeline from "@grafana/schema/dist/esm/raw/composable/statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen";
import type * as table from "@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen";
import type * as timeSeries from "@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen";

// JSON has the values of enumerations, not their names.
type Plain<T> = T extends string ? `${T}` : T extends object ? { [K in keyof T]: Plain<T[K]> } : T;

// DataSource is always the one that the variable names: nothing is bound to one installation.
type DataSource = { type: "prometheus"; uid: "${datasource}" };

// Query is one of Prometheus; its type is not among Grafana's published ones.
type Query = {
  refId: string;
  datasource: DataSource;
  expr: string;
  legendFormat: string;
} & ({ range: true } | { instant: true });

// Column is a query whose answer is columns of a table; Grafana names the value's by the refId.
type Column = Omit<Query, "legendFormat"> & { format: "table"; instant: true };

// Override changes the fields that a regular expression finds, or, in a table, a column by its name.
type Override =
  | { matcher: { id: "byRegexp"; options: string }; properties: { id: "color"; value: grafana.FieldColor }[] }
  | {
      matcher: { id: "byName"; options: string };
      properties: (
        | { id: "unit"; value: string }
        | { id: "mappings"; value: grafana.ValueMapping[] }
        | { id: "thresholds"; value: grafana.ThresholdsConfig }
        | { id: "links"; value: Pick<grafana.DashboardLink, "title" | "url">[] }
        | { id: "custom.cellOptions"; value: grafana.TableCellOptions }
      )[];
    };

// Transformation is one of those that make a table of queries. Their options are not among Grafana's published types.
type Transformation =
  | { id: "merge"; options: Record<string, never> }
  | {
      id: "organize";
      options: {
        excludeByName: Record<string, boolean>;
        indexByName: Record<string, number>;
        renameByName: Record<string, string>;
      };
    };

// Panel says per type what its plugin takes, which Grafana's own type leaves open.
type Panel<Type extends string, Options, Custom, Target = Query> =
  Omit<grafana.Panel, "type" | "options" | "fieldConfig" | "targets" | "datasource" | "gridPos" | "title" | "description" | "id" | "transformations"> & {
    id: number;
    type: Type;
    title: string;
    description: string;
    datasource: DataSource;
    gridPos: grafana.GridPos;
    options: Options;
    targets: Target[];
    fieldConfig: {
      defaults: Omit<grafana.FieldConfig, "custom"> & { custom?: Custom };
      overrides: Override[];
    };
  };

type Panels =
  | Panel<"bargauge", barGauge.Options, never>
  | Panel<"stat", stat.Options, never>
  | Panel<"state-timeline", stateTimeline.Options, stateTimeline.FieldConfig>
  | (Panel<"table", table.Options, table.FieldConfig, Column> & { transformations: Transformation[] })
  | Panel<"timeseries", timeSeries.Options, timeSeries.FieldConfig>;

type Variable = Omit<grafana.VariableModel, "datasource"> & { datasource?: DataSource };

type Dashboard = Plain<
  Omit<grafana.Dashboard, "panels" | "templating" | "uid" | "title"> & {
    uid: string;
    title: string;
    templating: { list: Variable[] };
    panels: (Panels | grafana.RowPanel)[];
  }
>;

